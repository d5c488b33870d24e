"""What one hop costs: counts, profiles, scaling."""
