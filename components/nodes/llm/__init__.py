"""The LLM component, and what it shares with Agent and Categorize."""
