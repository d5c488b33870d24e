"""Queries of the sweeper, of `easel explain` and of diagnosis."""
