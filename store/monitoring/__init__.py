"""Queries of the sweeper, and facts for `easel explain`."""
