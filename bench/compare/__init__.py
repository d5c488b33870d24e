"""`easel bench`: workloads, Easel and a control in turn, a table."""
