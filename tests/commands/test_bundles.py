"""The directory of bundles: the content of a file always has the hash that is its name."""

import errno
import hashlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT

from catalog.store.bundles.bundles import BundleError, Bundles

CONTENT = b"export default () => 'tick'\n"
SIZE = len(CONTENT)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def bundles(tmp_path: Path) -> Bundles:
    bundles = Bundles(tmp_path / "bundles")
    with bundles.writing():
        return bundles


def names(bundles: Bundles) -> list[str]:
    return sorted(path.name for path in bundles.directory.iterdir())


REFUSED = {
    "other bytes": (b"x" * SIZE, f"its SHA-256 is {hashlib.sha256(b'x' * SIZE).hexdigest()}, not "),
    "too short": (CONTENT[:-1], f"it has {SIZE - 1} bytes, not {SIZE}"),
    "too long": (CONTENT + b"\n", f"it has {SIZE + 1} bytes, not {SIZE}"),
    "nothing": (b"", f"it has 0 bytes, not {SIZE}"),
}


@pytest.mark.parametrize(("content", "message"), REFUSED.values(), ids=REFUSED)
def test_file_with_the_wrong_content_is_refused_and_removed(
    bundles: Bundles, content: bytes, message: str
) -> None:
    with pytest.raises(BundleError) as error:
        bundles.add(SHA256, SIZE, [content])
    assert str(error.value).startswith(message)
    assert names(bundles) == []


def test_a_bundle_that_cannot_be_completed_leaves_nothing(bundles: Bundles) -> None:
    def chunks() -> Iterator[bytes]:
        yield CONTENT[:5]
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        bundles.add(SHA256, SIZE, chunks())
    assert names(bundles) == []


@pytest.mark.parametrize(
    "name", ["", "../x", "/etc/passwd", SHA256[1:], SHA256 + "0", SHA256.upper(), SHA256 + "\n"]
)
def test_only_a_hash_becomes_a_path(bundles: Bundles, name: str) -> None:
    for use in (bundles.path, bundles.has, bundles.remove):
        with pytest.raises(ValueError, match="is not a SHA-256"):
            use(name)


def test_second_writer_waits_for_the_first_and_calls_on_wait(bundles: Bundles) -> None:
    waiting, order = threading.Event(), []

    def write_second() -> None:
        other = Bundles(bundles.directory)
        other.on_wait = waiting.set
        with other.writing():
            order.append("second")

    thread = threading.Thread(target=write_second)
    with bundles.writing():
        thread.start()
        assert waiting.wait(10)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]


def test_wait_for_another_writer_ends_with_a_sentence(bundles: Bundles) -> None:
    other = Bundles(bundles.directory, lock_timeout=0)
    with bundles.writing(), pytest.raises(TimeoutError) as error, other.writing():
        pass
    assert (error.value.filename, error.value.strerror) == (
        str(bundles.directory),
        "another command has locked it for 0 seconds; try again",
    )


def test_file_system_without_locks_for_directories_is_used_without_them(
    bundles: Bundles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", fail)
    with bundles.writing():
        bundles.add(SHA256, SIZE, [CONTENT])
    assert names(bundles) == [SHA256]


LOCK_FOREVER = """
import sys
from pathlib import Path
from catalog.store.bundles.bundles import Bundles
with Bundles(Path(sys.argv[1])).writing():
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_lock_of_a_killed_process_is_released(bundles: Bundles) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", LOCK_FOREVER, str(bundles.directory)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    process.kill()
    process.communicate(timeout=60)
    waited: list[bool] = []
    bundles.on_wait = lambda: waited.append(True)
    with bundles.writing():
        assert waited == []
