"""The sweeper: it finds what was lost and sends it again, and removes what is old."""
