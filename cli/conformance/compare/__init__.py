"""Compare what a case did with its recording."""
