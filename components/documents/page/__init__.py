"""Pages of a PDF: fonts, lines, layout, pictures."""
