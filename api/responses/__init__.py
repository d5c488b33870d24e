"""OpenAI's Responses API: a turn of an agent as a response, whole, streamed, or in the background."""
