"""What a catalog is exchanged as: JSON Lines, packs and manifests."""
