"""The web pages: the built files of `viewer/dist`, and the addresses at which a browser gets them."""
