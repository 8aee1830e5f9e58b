"""The HTTP API: one blueprint per path family, and the response cache."""
