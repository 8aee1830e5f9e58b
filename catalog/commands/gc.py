"""widget-catalog gc: removes bundles that no version uses, and compresses the others."""

from ..domain.messages import plural
from ..store.bundles.compressed import compress_bundle, needs_compression
from ..store.read.audit import local_actor
from ..store.read.stored_bundles import stored_hashes, used_hashes
from ..store.write.mirrored import remove_gone
from .base import command
from .context import bundles, database
from .options import dry_run_option
from .output import print_status


@command("gc")
@dry_run_option
def gc(dry_run: bool) -> None:
    """Remove unused bundles and pictures, and compress the others.

    Copies that a mirror has unlisted, because they are gone from its upstream, are deleted with
    their bundles. The bundles of yanked versions and of other unlisted widgets are kept. Bundles
    that an earlier release stored are compressed for clients that accept gzip.
    """
    with bundles().locked():
        if database().is_cluster:
            # The local file may lack a version that another node has published.
            database().check_writes()
        gone = database().transact(remove_gone, local_actor(), dry_run=dry_run)
        # Read the used hashes after the removal: a mirror may list a copy again at any time.
        with database().read() as connection:
            used = used_hashes(connection, dry_run=dry_run)
        unused = {*bundles().hashes()} - used
        partials = bundles().incomplete()
        size = sum(bundles().path(sha256).stat().st_size for sha256 in unused)
        if not dry_run:
            for sha256 in unused:
                bundles().remove(sha256)
            for path in partials:
                path.unlink(missing_ok=True)
    # Compress without the lock, so that publishers need not wait.
    compressed = compress_older(dry_run=dry_run)
    removed = "Would remove" if dry_run else "Removed"
    if gone:
        print_status(f"{removed} {plural(gone, 'widget')} that the upstream no longer shows.")
    print_status(f"{removed} {plural(len(unused), 'unused bundle')} ({size} bytes in total).")
    if partials:
        print_status(f"{removed} {plural(len(partials), 'incomplete bundle')}.")
    if compressed:
        count = plural(compressed, "bundle")
        print_status(f"{'Would compress' if dry_run else 'Compressed'} {count}.")


def compress_older(*, dry_run: bool) -> int:
    """Compress the bundles that an earlier release stored; return how many there were."""
    with database().read() as connection:
        stored = stored_hashes(connection)
    older = [sha256 for sha256 in stored if needs_compression(bundles(), sha256)]
    return len(older) if dry_run else sum(compress_bundle(bundles(), each) for each in older)
