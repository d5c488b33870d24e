"""Scheduler: advances runs, sends messages, and repairs what was lost."""
