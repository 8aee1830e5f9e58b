"""Access to the machine and the network: files, processes, TLS, and requests to other services."""
