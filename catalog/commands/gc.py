"""widget-catalog gc: removes bundles that no version uses."""

import click

from ..files import packs
from ..store.write.audit import local_actor
from ..store.write.held_bundles import release_bundles
from ..store.write.mirrored import remove_gone
from ..text import plural
from .base import bundles, command, database, print_status

# In a dry run, without those of copies that gc would remove.
USED_HASHES = """
SELECT sha256_hash FROM (
    SELECT widget_id, sha256_hash FROM version
    UNION SELECT widget_id, picture ->> 'sha256Hash' FROM about)
JOIN widget ON widget.id = widget_id LEFT JOIN mirrored USING (widget_id)
WHERE NOT :dry_run OR listed OR gone IS NOT 1
"""


@command("gc")
@click.option(
    "--release",
    is_flag=True,
    help="Also point versions whose bundle is missing here to their original URL again.",
)
@click.option("--dry-run", is_flag=True, help="Only print what would be done.")
def gc(release: bool, dry_run: bool) -> None:
    """Remove bundles and pictures that are not used.

    Copies that a mirror has unlisted, because they are gone from its upstream, are deleted with
    their bundles. The bundles of other unlisted widgets and of yanked versions are kept.
    """
    with bundles().locked():
        if database().is_cluster:
            # The local file may lack a version that another node has published.
            database().check_writes()
        gone = database().transact(remove_gone, local_actor(), dry_run=dry_run)
        # After it: a mirror may have listed a copy again while it waited.
        with database().read() as connection:
            rows = connection.execute(USED_HASHES, {"dry_run": dry_run})
            used = {sha256 for (sha256,) in rows}
            held = packs.held_hashes(connection)
        unused = {*bundles().hashes()} - used
        partials = bundles().incomplete()
        size = sum(bundles().path(sha256).stat().st_size for sha256 in unused)
        missing = [sha256 for sha256 in held if not bundles().holds(sha256)] if release else []
        released = database().transact(
            lambda transaction: release_bundles(transaction, missing, "release"),
            local_actor(),
            dry_run=dry_run,
        )
        if not dry_run:
            for path in (*map(bundles().path, unused), *partials):
                path.unlink(missing_ok=True)
    removed = "Would remove" if dry_run else "Removed"
    if gone:
        print_status(f"{removed} {plural(gone, 'widget')} that the upstream no longer shows.")
    print_status(f"{removed} {plural(len(unused), 'bundle')} of {size} bytes that no version uses.")
    if partials:
        print_status(f"{removed} {plural(len(partials), 'incomplete bundle')}.")
    if release:
        print_status(
            f"{'Would release' if dry_run else 'Released'} {plural(released, 'version')} whose "
            f"bundle is not in {bundles().name}."
        )
