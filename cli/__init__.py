"""The command line `easel`."""
