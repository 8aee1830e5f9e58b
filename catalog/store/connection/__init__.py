"""Connections to the database: reads, transactions, and the cluster instead of a file."""
