"""Work on untrusted data in limited child processes and in threads of its own."""
