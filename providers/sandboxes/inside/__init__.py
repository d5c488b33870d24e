"""What runs inside a sandbox: the child process, its mounts, its system calls, the wrappers of programs."""
