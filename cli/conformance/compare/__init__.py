"""Compare the result of a case with its recording."""
