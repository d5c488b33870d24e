"""Decides and sends."""
