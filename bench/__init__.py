"""Benchmark: the service against a constant response, another commit and other servers."""
