"""The index of chunks, in memory."""
