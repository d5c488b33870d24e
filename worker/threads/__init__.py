"""The threads of a worker process: those that compute, and the one that runs the event loop."""
