"""Model providers for measurements, and an HTTP client."""
