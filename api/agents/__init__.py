"""Routes of agents: drafts, versions, conversations, files, tags and tool calls."""
