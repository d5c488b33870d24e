"""Large values and files, in the database or in a bucket."""
