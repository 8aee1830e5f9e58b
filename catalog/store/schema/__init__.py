"""The schema: its versions and migrations, and the rows that are derived from others."""
