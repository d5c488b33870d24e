"""Whether this process still works: watchdog and broker probe."""
