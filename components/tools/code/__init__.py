"""CodeExec: programs in a sandbox, their output and files."""
