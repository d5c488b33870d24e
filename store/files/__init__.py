"""File storage, in a folder or a bucket, and the large values in it."""
