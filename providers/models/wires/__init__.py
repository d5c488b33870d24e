"""The protocols of vendors ("wires"): OpenAI, Anthropic, Gemini, Bedrock. A wire sends one request, once."""
