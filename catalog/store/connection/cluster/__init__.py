"""The catalog on a cluster of rqlite nodes; no other package knows about the cluster."""
