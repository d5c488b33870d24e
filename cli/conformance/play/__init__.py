"""Run recorded cases: fixtures, services, and the events of the runs."""
