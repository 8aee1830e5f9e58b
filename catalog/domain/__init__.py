"""The rules for widgets, versions and tokens. No module here uses SQL, HTTP or files."""
