"""What a widget, a version and a token are: rules without SQL, HTTP or files."""
