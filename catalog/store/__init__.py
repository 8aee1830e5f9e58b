"""The SQLite database (connections, queries, writes and maintenance) and the stored bundles."""
