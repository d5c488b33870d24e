"""Open a chat model: the catalogue, retries, and the built-in models `echo` and `scripted`."""
