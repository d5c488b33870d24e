"""Pages: layout, fonts, lines and images."""
