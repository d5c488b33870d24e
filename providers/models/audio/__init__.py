"""Clients of models for text to speech and speech to text."""
