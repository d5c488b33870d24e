"""Code that runs inside a sandbox: the child process, its mounts, its system call filter, and program wrappers."""
