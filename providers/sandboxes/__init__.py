"""Where untrusted code runs: on this machine, over SSH, or at a sandbox service."""
