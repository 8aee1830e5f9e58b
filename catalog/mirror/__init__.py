"""Mirrors of an upstream catalog, made through its public API."""
