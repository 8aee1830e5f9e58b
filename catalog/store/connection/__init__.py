"""Connections to the database, transactions, and an rqlite cluster in place of a local file."""
