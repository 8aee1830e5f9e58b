"""Writes: each module contains the statements for one kind of change."""
