"""The server process: waitress, its threads, its connections and its log."""
