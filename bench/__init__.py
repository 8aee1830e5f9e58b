"""Benchmark: the service against a constant response and another commit."""
