"""The SQLite file: everything that reads or writes it."""
