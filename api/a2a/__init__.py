"""The A2A protocol (agent to agent): a published agent as a server that other agents call. Tasks are runs."""
