"""The schema: its versions, and the rows that are derived from others."""
