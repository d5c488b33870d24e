"""Schedules: when they are due, and how their runs are started."""
