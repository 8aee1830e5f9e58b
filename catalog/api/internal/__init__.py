"""The internal API: requests that change the catalog and need a token."""
