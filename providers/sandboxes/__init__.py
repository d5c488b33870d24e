"""Sandboxes for untrusted code: on this machine, over SSH, or at a sandbox service."""
