"""What all tools share: the `Tool` itself, HTTP, parameters, rate limits, citations."""
