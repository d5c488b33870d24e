"""Commands that start processes, and `easel doctor`."""
