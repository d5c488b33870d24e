"""Which vendors and model families there are, and what each can do."""
