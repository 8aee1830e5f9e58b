"""pytest plugin: a running Widget Catalog as a fixture."""
