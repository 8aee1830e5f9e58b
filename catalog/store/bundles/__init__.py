"""The stored bundles and pictures: their files."""
