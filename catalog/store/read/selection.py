"""Selects widgets by the options of the mirror, pack and export commands."""

import json
import shlex
import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass

from ...domain.semver_ranges import satisfies
from ..connection.sqlite import fetch_all

# A condition for statements about widgets; :paths is the result of find_selected().
IS_SELECTED = "(:paths IS NULL OR scope || '/' || name IN (SELECT value FROM json_each(:paths)))"


@dataclass(frozen=True)
class Selection:
    """A selection of scopes and widgets; an empty selection selects all widgets.

    If SDKs are given, select only widgets with an available version that runs on one of them.
    """

    scopes: Sequence[str] = ()
    # The widgets, each as scope/name.
    widgets: Sequence[str] = ()
    sdks: Sequence[str] = ()

    def selects(self, scope: str, name: str) -> bool:
        """Return whether the selection names the scope or the widget, or names nothing at all."""
        is_named = scope in self.scopes or f"{scope}/{name}" in self.widgets
        return is_named or not (self.scopes or self.widgets)

    def arguments(self) -> list[str]:
        """Return the command-line options that select these widgets."""
        arguments = []
        for name, value in asdict(self).items():
            option = "--" + name.replace("_", "-")
            if isinstance(value, list | tuple):
                # The option is named after the field, without the plural s.
                arguments += [shlex.join([option[:-1], each]) for each in value]
            elif value:
                arguments.append(option if value is True else shlex.join([option, str(value)]))
        return arguments

    def unmatched(self, paths: Collection[str]) -> list[str]:
        """Return the options that match none of these widgets; each path is a scope/name."""
        if not paths:
            return Selection(self.scopes, self.widgets, self.sdks).arguments()
        found = {path.partition("/")[0] for path in paths}
        scopes = [scope for scope in self.scopes if scope not in found]
        return Selection(scopes, [each for each in self.widgets if each not in paths]).arguments()


CANDIDATES = """
SELECT scope, name FROM widget
WHERE :ranges IS NULL OR id IN (
    SELECT widget_id FROM version
    WHERE NOT yanked AND sdk_version IN (SELECT value FROM json_each(:ranges)))
ORDER BY scope, name
"""


def find_selected(connection: sqlite3.Connection, selection: Selection) -> list[str] | None:
    """Return the scope/name of each selected widget; None if nothing limits the selection."""
    if not selection.arguments():
        return None
    ranges = None
    if selection.sdks:
        known = [range_ for (range_,) in fetch_all(connection, "SELECT range FROM sdk_range")]
        fit = [each for each in known if any(satisfies(sdk, each) for sdk in selection.sdks)]
        ranges = json.dumps(fit)
    rows = fetch_all(connection, CANDIDATES, {"ranges": ranges})
    return [f"{scope}/{name}" for scope, name in rows if selection.selects(scope, name)]
