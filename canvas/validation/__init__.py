"""What is wrong with a canvas, or probably not meant, before it runs."""
