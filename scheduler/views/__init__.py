"""Views of runs and events for readers."""
