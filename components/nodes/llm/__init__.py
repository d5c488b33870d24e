"""The LLM component, and the model calls that Agent and Categorize share with it."""
