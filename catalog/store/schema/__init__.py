"""The schema with its versions and migrations, and the rows derived from other rows."""
