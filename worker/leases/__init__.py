"""Leases: renewal, cancellation, tasks that lose their workers."""
