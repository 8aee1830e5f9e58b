"""File formats for exchanging catalogs: JSON Lines and packs."""
