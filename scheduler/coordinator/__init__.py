"""The coordinator: it advances runs."""
