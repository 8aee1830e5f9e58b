"""The benchmark: compares the service with a constant response and with another commit."""
