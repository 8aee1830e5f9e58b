"""The files of the stored bundles and pictures."""
