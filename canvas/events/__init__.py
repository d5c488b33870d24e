"""Events of a run, the text of its message streams, and why a run waits."""
