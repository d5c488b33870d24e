"""The Agent component: tools, rounds of tool calls, deep research."""
