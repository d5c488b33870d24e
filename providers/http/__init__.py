"""The one outgoing HTTP client, and which addresses it may reach."""
