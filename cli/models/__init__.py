"""Commands for model accounts."""
