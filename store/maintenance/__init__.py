"""Migrations, partitions and retention."""
