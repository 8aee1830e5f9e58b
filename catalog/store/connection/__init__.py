"""Connections to the database, transactions, and the cluster that can replace the file."""
