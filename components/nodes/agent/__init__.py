"""The components Agent and DeepResearch: tools, rounds of tool calls, research."""
