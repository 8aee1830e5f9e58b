"""The server process: its threads, its connections, its HTTP and its log."""
