"""Play a recorded case: its fixtures, its services, its events."""
