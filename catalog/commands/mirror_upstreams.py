"""widget-catalog mirror status, move and forget: commands for the catalog's upstreams."""

from contextlib import closing
from dataclasses import replace
from functools import partial

import click

from ..domain.messages import plural
from ..store.read.audit import local_actor
from ..store.read.mirrors import find_local_widgets, find_source, find_sources
from ..store.read.selection import Selection
from ..store.write.mirrored import forget_upstream, move_upstream
from .base import command
from .context import database
from .mirror import URL, mirror, yes_option
from .mirror_refresh import known_upstreams, one_run, open_upstream, refresh
from .mirror_report import describe_upstream, print_upstreams
from .options import dry_run_option, json_option
from .output import CommandError, confirm, format_counts, print_first, print_json, print_status
from .server_option import CA_OPTION

# A move needs confirmation if the new URL lists a smaller share of the copies.
MIN_SHARE = 0.9


@command("status", mirror)
@json_option
def status(json_output: bool) -> None:
    """Show the upstreams, and what was copied from them."""
    known = known_upstreams()
    if json_output:
        print_json([describe_upstream(each) for each in known])
    elif known:
        print_upstreams(known)
    else:
        print_status("There are no upstreams.")


@command("move", mirror)
@click.argument("old", type=URL)
@click.argument("new", type=URL)
@yes_option
@click.option("--ca", **CA_OPTION)
@dry_run_option
def move(old: str, new: str, yes: bool, dry_run: bool) -> None:
    """Follow an upstream to another URL, and refresh its copies from there.

    OLD is the URL that `mirror status` shows. OLD's copies and options then belong to NEW.
    NEW must list at least 90% of the copies, unless you confirm the move.
    """
    from ..mirror.lists import list_widgets
    from ..mirror.options import MirrorOptions, check_memory
    from ..mirror.upstream import UpstreamError

    known = known_upstreams()
    source = find_known(old)
    if find_source(database(), new) in find_sources(database()):
        raise CommandError(f"{new} is already an upstream; `mirror status` lists the upstreams.")
    upstream = next((each for each in known if each.source == source), None)
    if upstream is None:
        raise CommandError(
            f"No run of {source} has completed, so its options are unknown. Use "
            f"`mirror forget {source}`, then `mirror {new} --adopt`."
        )
    options = MirrorOptions.from_memory(upstream.options)
    options = replace(options, ca=click.get_current_context().meta.get("ca") or options.ca)
    with one_run():
        try:
            check_memory(new, upstream.options)
            with closing(open_upstream(new, options)) as target:
                listed, _ = list_widgets(target, Selection())
        except UpstreamError as error:
            raise CommandError(f"Cannot move to {new}: {error}. Nothing was changed.") from error
        local = find_local_widgets(database())
        copies = [key for key, each in local.items() if each.source == source and each.listed]
        found = [key for key in copies if key in listed]
        if copies and not found:
            raise CommandError(f"{new} lists none of the copies. Nothing was changed.")
        print_first([f"{key} was not found at {new}." for key in copies if key not in listed])
        print_status(f"{new} lists {len(found)} of {plural(len(copies), 'copy', 'copies')}.")
        if dry_run:
            return
        if len(found) < MIN_SHARE * len(copies):
            confirm(f"Move to {new} even though it lists less than 90% of the copies?", yes)
        write = partial(move_upstream, source=source, new=new)
        database().transact(write, local_actor())
        print_status(f"Moved upstream {source} to {new}.")
        refresh(new, options, adopt=False, dry_run=False, yes=yes, is_new=False)


@command("forget", mirror)
@click.argument("url", type=URL)
@click.option("--delete", is_flag=True, help="Delete the copies too.")
@yes_option
@dry_run_option
def forget(url: str, delete: bool, yes: bool, dry_run: bool) -> None:
    """Remove an upstream; its copies become local widgets."""
    known_upstreams()
    source = find_known(url)

    def run(*, dry_run: bool) -> tuple[int, int]:
        write = partial(forget_upstream, source=source, delete=delete)
        return database().transact(write, local_actor(), dry_run=dry_run)

    widgets, versions = run(dry_run=True)
    if delete and not dry_run:
        confirm(f"Delete {format_counts(widgets, versions)} that were copied from {source}?", yes)
    if not dry_run:
        run(dry_run=False)
    removed = f"{'Would remove' if dry_run else 'Removed'} upstream {source}"
    copies = plural(widgets, "copy", "copies")
    if delete:
        print_status(f"{removed} and {'delete' if dry_run else 'deleted'} its {copies}.")
    else:
        become = "would become" if dry_run else "are now" if widgets != 1 else "is now"
        local = "a local widget" if widgets == 1 else "local widgets"
        print_status(f"{removed}; {copies} {become} {local}.")


def find_known(url: str) -> str:
    """Return the stored URL of an upstream; raise CommandError if it is unknown."""
    source, known = find_source(database(), url), find_sources(database())
    if source not in known:
        upstreams = f"the upstreams are {', '.join(known)}" if known else "there are none"
        raise CommandError(f"{url} is not an upstream; {upstreams}.")
    return source
