"""Protocols of vendors: OpenAI, Anthropic, Gemini, Bedrock."""
