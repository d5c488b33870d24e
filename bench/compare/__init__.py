"""`easel bench`: runs workloads on Easel and on a control in turn, and prints a table."""
