"""Counts installs."""

from ...domain.semver_ranges import MAX_SAFE_INTEGER
from ..connection.database import Database

# Triggers in schema.sql also count the install by day and by version.
COUNT_INSTALL = f"""
UPDATE widget SET download_count = min(coalesce(download_count, 0) + 1, {MAX_SAFE_INTEGER}),
    installed_day = :day, installed_version = :version
WHERE scope = :scope AND name = :name AND (:version = '' OR listed AND EXISTS (
    SELECT 1 FROM version WHERE widget_id = widget.id AND version = :version))
"""


def count_install(database: Database, scope: str, name: str, day: int, version: str = "") -> bool:
    """Count one install on the day that today() returned; return False if the widget is missing.

    If a version is given, also return False if the widget lacks it or is unlisted: the response
    must not reveal which versions an unlisted widget has.
    """
    values = {"scope": scope, "name": name, "day": day, "version": version}
    return database.execute(COUNT_INSTALL, values) > 0
