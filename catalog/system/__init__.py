"""What the service uses of the machine: files, TLS, requests to other services."""
