"""The output of commands: data, status lines, errors, questions and progress.

All commands print with the functions in this module. Strings may come from a service, a file or the
catalog, so terminal control characters are printed as escapes.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

import click

from ..domain.changes import LatestVersions
from ..domain.documents import MAX_PROBLEMS
from ..domain.messages import escape_unprintable, plural
from ..domain.semver_ranges import is_prerelease
from .terminal import format_json, replace_unprintable

# Python's name for standard input.
STDIN = "<stdin>"


class CommandError(click.ClickException):
    """Makes the command exit with status 1; each line of the message is a reason."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(map(escape_unprintable, lines)))


def is_quiet() -> bool:
    """Return whether the command was run with --quiet."""
    return bool(click.get_current_context().meta.get("quiet"))


def print_lines(*lines: str, err: bool = False) -> None:
    """Print each string on its own line."""
    click.echo("\n".join(map(escape_unprintable, lines)), err=err)


def print_json(value: object) -> None:
    """Print the value as indented JSON."""
    click.echo(format_json(value))


def print_status(message: str) -> None:
    """Print a status line to standard error unless --quiet is given; stdout is for data."""
    if not is_quiet():
        print_lines(message, err=True)


def print_first(sentences: Sequence[str], *, is_error: bool = False) -> None:
    """Print at most MAX_PROBLEMS sentences, and how many more there are.

    Errors are printed even with --quiet.
    """
    more = len(sentences) - MAX_PROBLEMS
    lines = [*sentences[:MAX_PROBLEMS], *([f"There are {more} more."] if more > 0 else [])]
    for line in lines:
        if is_error or not is_quiet():
            print_lines(replace_unprintable(line), err=True)


def print_latest(widget: object, result: LatestVersions, *, dry_run: bool = False) -> None:
    """Print the latest version if the command changed it; for a prerelease, also the stable one."""
    latest = result["latestVersion"]
    if latest == result["previousLatestVersion"]:
        return
    verb = "would be" if dry_run else "is now"
    print_status(f"The latest version of {widget} {verb} {latest or 'none'}.")
    # Older services do not report which version is stable.
    if latest and is_prerelease(str(latest)) and "latestStableVersion" in result:
        stable = result["latestStableVersion"] or "no version"
        verb = "would get" if dry_run else "get"
        print_status(f"It is a prerelease; clients that send stable=true {verb} {stable}.")


def file_name(file: BinaryIO) -> str:
    """Return the name of an open file for use in messages."""
    return str(getattr(file, "name", STDIN))


def format_counts(widgets: int, versions: int) -> str:
    """Return how many widgets and versions there are, in words."""
    return f"{plural(widgets, 'widget')} and {plural(versions, 'version')}"


def describe_expiry(expires_at: str | None) -> str:
    """Return how long a token is valid, in words."""
    return f"valid until {expires_at or 'it is revoked'}"


def confirm(question: str, yes: bool) -> None:
    """Ask the operator unless --yes is given; raise CommandError unless the answer is yes.

    Without a terminal, raise CommandError at once, so that a script never waits for an answer.
    """
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise CommandError(f"{question} Standard input is not a terminal; use --yes to confirm.")
    if not click.confirm(question, err=True):
        raise CommandError("Nothing was changed.")


@contextmanager
def progress_bar(label: str, *, show_count: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Yield a function of (done, total) that updates a progress bar.

    The bar is shown only on an interactive terminal.
    """
    if is_quiet() or sys.stderr is None or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    with click.progressbar(length=0, label=label, show_pos=show_count, file=sys.stderr) as bar:

        def on_progress(done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos)

        yield on_progress
