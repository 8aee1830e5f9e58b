"""The process: waitress, its threads, its connections and its log."""
