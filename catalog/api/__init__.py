"""The HTTP API: one blueprint per path family, and the cache of its responses."""
