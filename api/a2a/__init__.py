"""The Agent2Agent protocol: a published agent as a server that other agents call. Tasks are runs."""
