"""The files that hold stored bundles and pictures."""
