"""Connections, exit codes, options and output, which all commands share."""
