"""The events of a run for its readers: read from the rows, kept current by notifications, sent as frames."""
