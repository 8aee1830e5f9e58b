"""The Widget Catalog: a public, read-mostly HTTP API on one SQLite file."""

__version__ = "1.0.0"
