"""The server of the pytest plugin: a fork server, its catalogs, and fault injection."""
