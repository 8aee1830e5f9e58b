"""File formats for the exchange of catalogs: JSON Lines and packs."""
