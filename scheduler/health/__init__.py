"""Health of this process: watchdog and broker probe."""
