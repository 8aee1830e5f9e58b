"""File formats for the exchange of catalogs: JSON Lines, packs and manifests."""
