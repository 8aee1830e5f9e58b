"""The catalog on a cluster of rqlite nodes; nothing else in the service knows of it."""
