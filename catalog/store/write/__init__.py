"""Writes: each module has the statements of one kind of change."""
