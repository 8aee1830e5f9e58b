"""Copies an upstream catalog through its public API, and brings a copy up to date."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import quote

from catalog import V1_PREFIX
from catalog.documents import Document, DocumentError, check_document, parse_json
from catalog.mirror.upstream import RefusedError, Upstream, UpstreamError
from catalog.mirror.widget_list import PAGE, Name, count, walk
from catalog.mirror.workers import OnProgress, ahead, batches, counted, pool
from catalog.store import mirror_writes, writes
from catalog.store.database import Database
from catalog.store.sqlite import Statement
from catalog.text import quoted
from catalog.validators import check_identifier

MAX_WALKS = 5
GIVE_UP_AFTER = 25  # requests in a row without an answer


class MirrorError(Exception):
    """The run cannot go on; the message says why in one sentence."""


class Local(NamedTuple):
    """A widget as it is here; the source is None unless it is a copy."""

    id: int
    listed: bool
    source: str | None
    etag: str | None


class Wish(NamedTuple):
    """What the operator wants of a run."""

    scopes: Collection[str] = ()  # none: all of them
    adopt: bool = False
    prune: bool = False
    dry_run: bool = False


class Copy(NamedTuple):
    """What the upstream has of a widget; neither document nor failure where nothing changed."""

    name: Name
    document: Document | None = None
    etag: str | None = None
    is_missing: bool = False
    failure: str | None = None
    is_answered: bool = True


@dataclass
class Report:
    """What became of the widgets of a run."""

    added: int = 0
    changed: int = 0
    unchanged: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    missing: set[Name] = field(default_factory=set)
    gone: list[Name] = field(default_factory=list)  # those missing that are here
    unwritten: list[Document] = field(default_factory=list)  # of a dry run


LOCAL = """
SELECT scope, name, id, listed, source, etag FROM widget LEFT JOIN mirrored ON widget_id = id
ORDER BY scope, name
"""


def mirror(
    database: Database, upstream: Upstream, wish: Wish, workers: int, on_progress: OnProgress
) -> Report:
    """Have here every widget that the upstream lists, as it is there."""
    total = count(upstream, wish.scopes)  # first of all, to see that a catalog answers
    if not database.exists() and not wish.dry_run:
        database.create()
    rows = database.reader().execute(LOCAL) if database.exists() else []
    local = {Name(*row[:2]): Local(*row[2:]) for row in rows}
    known = [
        name
        for name, widget in local.items()
        if widget.listed and widget.source == upstream.base and _is_wanted(name, wish)
    ]
    if wish.prune and known and not total:
        raise MirrorError(f"{upstream.base} lists no widget; --prune would unlist all copies of it")
    report = Report()
    seen: set[Name] = set()

    def take(listed: list[Name]) -> None:
        names = [name for name in listed if name not in seen and _is_wanted(name, wish)]
        of = max(total, len(seen) + len(names))
        copies = ahead(threads, lambda name: copy(upstream, name, local.get(name), wish), names)
        for batch in batches(counted(_while_answered(copies), on_progress, len(seen), of)):
            settle(database, upstream.base, local, wish, batch, report)
        seen.update(names)

    with pool(workers) as threads:
        take(known)
        # Where the copies that are still there are as many as are listed, no others are listed.
        if len(known) - len(report.missing) != count(upstream, wish.scopes):
            take_listed(upstream, wish, take, report, most=2 * total + PAGE)
    if report.added + report.changed >= writes.OPTIMIZE_AFTER and not wish.dry_run:
        database.write(writes.optimize_search_index())
    report.gone = [
        name for name in known if name in report.missing and str(name) not in report.failures
    ]
    if wish.prune and not wish.dry_run:
        unlist = [writes.set_listed(local[name].id, False) for name in report.gone]
        database.write([statement for statements in unlist for statement in statements])
    return report


def take_listed(
    upstream: Upstream,
    wish: Wish,
    take: Callable[[list[Name]], None],
    report: Report,
    most: int,
) -> None:
    """Take what the upstream lists, reading its list again until it has held still.

    The pages that are read in one turn are those that a list of the most widgets has.
    """
    for _ in range(MAX_WALKS):
        listed, is_complete = walk(upstream, wish.scopes, most)
        take(listed)
        if is_complete:
            break
    else:
        report.failures["The list"] = f"changed or repeated itself in each of {MAX_WALKS} readings"
    contradictory = report.missing.intersection(listed)
    if contradictory and count(upstream, wish.scopes) == len(listed):  # none was unlisted since
        for name in contradictory:
            report.failures[str(name)] = "is listed, but there is no detail of it"


def _is_wanted(name: Name, wish: Wish) -> bool:
    return not wish.scopes or name.scope in wish.scopes


def copy(upstream: Upstream, name: Name, local: Local | None, wish: Wish) -> Copy:
    """What the upstream has of the widget, checked like any document that comes in."""
    is_copy = local is not None and local.source == upstream.base
    if local and not is_copy and not wish.adopt:
        origin = (
            f"is a copy from {local.source}" if local.source else "was not copied but made here"
        )
        return Copy(name, failure=f"{origin}; --adopt replaces it")
    etag = local.etag if local and is_copy and local.listed else None
    try:
        path = "/".join(quote(check_identifier(part), safe="") for part in name)
    except ValueError as allowed:
        return Copy(name, failure=f"scope and name must be {allowed}")
    try:
        answer = upstream.get(f"{V1_PREFIX}{path}", etag)
        if answer.status == 404:
            return Copy(name, is_missing=True)
        if answer.status == 304:
            return Copy(name)
        document = check_document(parse_json(answer.body))
    except UpstreamError as error:
        return Copy(name, failure=str(error), is_answered=isinstance(error, RefusedError))
    except DocumentError as error:
        more = f" (and {len(error.problems) - 1} more)" if len(error.problems) > 1 else ""
        return Copy(name, failure=f"{error.problems[0]}{more}")
    except RecursionError:
        return Copy(name, failure="the answer is nested too deep")
    except ValueError as error:
        return Copy(name, failure=f"the answer is not JSON in UTF-8 ({error})")
    if document.path != str(name):
        return Copy(name, failure=f"the answer is about {quoted(document.path)}")
    return Copy(name, document, answer.etag)


def _while_answered(copies: Iterable[Copy]) -> Iterator[Copy]:
    """The copies, until so many in a row failed that the rest would too."""
    unanswered = 0
    for each in copies:
        unanswered = 0 if each.is_answered else unanswered + 1
        if unanswered == GIVE_UP_AFTER:
            raise MirrorError(
                f"{unanswered} requests in a row failed, the last one because {each.failure}"
            )
        yield each


def settle(
    database: Database,
    source: str,
    local: dict[Name, Local],
    wish: Wish,
    copies: list[Copy],
    report: Report,
) -> None:
    """Write the copies in one transaction, and report what became of each."""
    new: list[list[Statement]] = []
    known: list[list[Statement]] = []
    mirrored = []
    for name, document, etag, is_missing, failure, _ in copies:
        if failure is not None:
            report.failures[str(name)] = failure
        elif is_missing:
            report.missing.add(name)
        elif document is None:
            report.unchanged += 1
        else:
            replaces = name in local and local[name].source is None
            part = mirror_writes.put_upstream_document(document, replaces=replaces)
            (known if name in local else new).append(part)
            upstream_count = document.widget["download_count"]
            mirrored.append(mirror_writes.MirroredWidget(*name, source, etag, upstream_count))
            if wish.dry_run:
                report.unwritten.append(document)
    changed = _changing(database, known)
    report.added += len(new)
    report.changed += len(changed)
    report.unchanged += len(known) - len(changed)
    if mirrored and not wish.dry_run:
        statements = [statement for part in new + changed for statement in part]
        database.write([*statements, *mirror_writes.put_mirrored(mirrored)])


def _changing(database: Database, parts: list[list[Statement]]) -> list[list[Statement]]:
    """Those of the parts that would change a row.

    Even where no row changes, SQLite counts up for each that could have been added, and writes.
    """
    if not parts:
        return []
    counts = iter(database.dry_run([statement for part in parts for statement in part]))
    return [part for part in parts if sum([next(counts) for _ in part])]
