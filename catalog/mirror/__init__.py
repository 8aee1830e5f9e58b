"""Mirrors an upstream catalog through its public API."""
