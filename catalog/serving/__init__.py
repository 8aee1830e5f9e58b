"""The server process: its threads, connections, HTTP handling and logs."""
