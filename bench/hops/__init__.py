"""The cost of one hop: counts, processor time, profiles, scaling, capacity."""
