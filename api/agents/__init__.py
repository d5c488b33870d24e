"""Agents, their drafts and versions, conversations and files."""
