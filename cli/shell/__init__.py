"""What all commands share: connections, exit codes, options, output."""
