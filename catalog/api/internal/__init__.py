"""The internal API: requests with a token that change the catalog."""
