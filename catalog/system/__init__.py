"""Access to the machine and the network: files, processes, TLS, requests to other services."""
