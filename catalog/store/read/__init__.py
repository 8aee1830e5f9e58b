"""Reads: each module has the statements of one response or command."""
