"""The rules for widgets, versions and tokens, without SQL, HTTP or files."""
