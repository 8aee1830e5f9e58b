"""Maintenance of a whole catalog: checks and backups."""
