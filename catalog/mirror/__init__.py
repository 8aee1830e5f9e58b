"""Mirrors of an upstream catalog, which use its public API."""
