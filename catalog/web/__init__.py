"""The web pages and the API reference."""
