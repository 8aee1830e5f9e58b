"""The options that decide what a mirror copies from an upstream."""

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, fields

from ..domain.documents import Json
from ..store.read.selection import Selection
from .upstream import UpstreamError

# The prefix of an ETag that was stored together with a choice of versions.
CHOICE = "newest="


@dataclass(frozen=True)
class MirrorOptions(Selection):
    """The options of a run. Copies are refreshed even if they are no longer selected."""

    # Widgets that are neither copied nor refreshed, as scope/name.
    excludes: Sequence[str] = ()
    # How many versions of each widget to copy (for each SDK, if any); None copies all.
    newest: int | None = None
    bundles: bool = False
    keep_removed: bool = False
    # The minimum age of a version in hours or days, such as 7d.
    min_age: str | None = None
    # The path of a PEM file with certificates to trust.
    ca: str | None = None

    @classmethod
    def from_memory(cls, values: Json) -> "MirrorOptions":
        """Return the options that a run has stored, except options that no longer exist."""
        known = {field.name for field in fields(cls)}
        return cls(**{key: value for key, value in values.items() if key in known})

    def selects(self, scope: str, name: str) -> bool:
        """Return whether the options select the widget and do not exclude it."""
        return f"{scope}/{name}" not in self.excludes and super().selects(scope, name)

    def unmatched(self, paths: Collection[str], others: Collection[str] = ()) -> list[str]:
        """Return the options that match no widget; --exclude looks in others, the rest in paths."""
        excludes = [each for each in self.excludes if each not in others]
        return super().unmatched(paths) + MirrorOptions(excludes=excludes).arguments()

    def json(self) -> str:
        """Return the options as they are stored."""
        return json.dumps(asdict(self), ensure_ascii=False)

    def dropped_from(self, before: "MirrorOptions") -> list[str]:
        """Return the arguments for the previous options that are not among these options."""
        return [each for each in before.arguments() if each not in self.arguments()]

    def mark_etag(self, etag: str | None) -> str | None:
        """Return the ETag to store, which is valid only for the same choice of versions."""
        return etag and self._choice + etag

    def valid_etag(self, stored: str | None) -> str | None:
        """Return the upstream's ETag if it was stored for this choice of versions."""
        if stored is None or not stored.startswith(self._choice):
            return None
        etag = stored.removeprefix(self._choice)
        return None if etag.startswith(CHOICE) else etag

    @property
    def _choice(self) -> str:
        return f"{CHOICE}{self.newest},{','.join(self.sdks)} " if self.newest else ""


def check_memory(url: str, values: Json) -> None:
    """Raise UpstreamError if a run has stored --official, which no longer exists.

    Without this check, the next run would copy more than the operator has chosen.
    """
    if values.get("official"):
        raise UpstreamError(
            "its last run used the --official option, which no longer exists. Select widgets "
            f"with other options: widget-catalog mirror {url} --scope SCOPE"
        )
