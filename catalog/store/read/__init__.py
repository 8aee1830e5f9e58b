"""Reads: each module contains the statements for one response or command."""
