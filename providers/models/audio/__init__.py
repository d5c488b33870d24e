"""Text to speech, and speech to text."""
