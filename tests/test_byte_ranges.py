"""Range headers: the bytes that they request, and the part of the file that is sent."""

import io
import re
import time
from wsgiref.util import FileWrapper

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from waitress.buffers import ReadOnlyFileBasedBuffer

from catalog.api.byte_ranges import FilePart, parse_range

WHOLE = None
NOTHING: list[int] = []

numbers = st.integers(0, 12).map(str) | st.sampled_from(["", "007", "9" * 30])
specs = st.builds("{}-{}".format, numbers, numbers) | st.text("0123-, =\tx", max_size=5)
units = st.sampled_from(["bytes", "Bytes", "BYTES", "lines", "", "bytes ", " bytes"])
headers = st.builds(
    lambda unit, ranges: f"{unit}={','.join(ranges)}",
    st.just("bytes") | units,
    st.lists(specs, min_size=1, max_size=1) | st.lists(specs, max_size=3),
) | st.text(max_size=20)
property_settings = settings(derandomize=True, deadline=None)


def expected(header: str, size: int) -> list[int] | None:
    """Return the bytes by a plain implementation of RFC 9110, section 14.1.2."""
    match = re.fullmatch(r"(?i:bytes)=[ \t,]*([0-9]*)-([0-9]*)[ \t,]*", header)
    if not match or match[0].endswith("=-") or not (match[1] or match[2]):
        return WHOLE
    if not match[1]:
        at_most = int(match[2])
        # Content-Range cannot name a part of an empty file.
        return [at for at in range(size) if size - at <= at_most] if size or not at_most else WHOLE
    first, last = int(match[1]), int(match[2] or "9" * 40)
    return [at for at in range(size) if first <= at <= last] if first <= last else WHOLE


@property_settings
@given(headers, st.integers(0, 10))
@example("bytes=-99", 10)
@example("bytes=-0", 10)
@example("bytes=-0", 0)
@example("bytes=-1", 0)
@example("bytes=0-", 0)
@example("bytes=0-0", 10)
@example("bytes=9-9", 10)
@example("bytes=10-", 10)
@example("bytes=5-2", 10)
@example("bytes=,3-4, ", 10)
@example("bytes=0-1,3-4", 10)
@example("bytes=0-1,x", 10)
@example("bytes=-", 10)
@example("bytes=--1", 10)
@example("bytes=1-2-3", 10)
@example("bytes=+1-2", 10)
@example("bytes=1_0-", 10)
@example("bytes=１-", 10)
@example("bytes 0-5", 10)
def test_part_matches_a_plain_implementation_of_the_rfc(header: str, size: int) -> None:
    part = parse_range(header, size)
    assert (part if part is None else list(part)) == expected(header, size)


def test_very_long_number_is_past_the_end_or_ignored() -> None:
    assert parse_range(f"bytes={'9' * 4000}-", 10) == range(0)
    assert parse_range(f"bytes=-{'9' * 4000}", 10) == range(10)
    assert parse_range(f"bytes={'9' * 32_000}-", 10) is None


@pytest.mark.parametrize("piece", ["9", "0", "-", ",", ", ", "=", "bytes=", " ", "1-2,", "\t"])
def test_long_header_takes_little_time(piece: str) -> None:
    for start in ("bytes=", "bytes=1", "bytes=1-", "bytes=-", ""):
        begun = time.thread_time()
        parse_range((start + piece * 32_768)[:32_768], 10)
        assert time.thread_time() - begun < 2  # seconds


CONTENT = bytes(range(100))


@property_settings
@given(st.integers(0, 100), st.integers(0, 100), st.integers(1, 40))
def test_file_part_ends_where_the_part_ends(start: int, stop: int, block: int) -> None:
    part = FilePart(io.BytesIO(CONTENT), range(start, max(start, stop)))
    assert b"".join(FileWrapper(part, block)) == CONTENT[start:stop]
    assert part.read() == b""


@property_settings
@given(st.integers(0, 99), st.integers(1, 100), st.lists(st.integers(0, 30), max_size=8))
def test_waitress_sends_a_file_part_like_a_file(start: int, length: int, sizes: list[int]) -> None:
    content = CONTENT[start : start + length]
    part = FilePart(io.BytesIO(CONTENT), range(start, start + len(content)))
    buffer = ReadOnlyFileBasedBuffer(part)
    assert buffer.prepare() == len(content)
    sent = b""
    for size in [*sizes, 100]:
        # Like waitress: read some bytes, then skip those that were sent.
        peeked = buffer.get(size)
        assert peeked == content[len(sent) : len(sent) + size]
        sent += buffer.get(len(peeked), skip=True)
    assert sent == content


def test_file_part_can_be_rewound_and_closed() -> None:
    file = io.BytesIO(CONTENT)
    part = FilePart(file, range(10, 20))
    assert (part.seek(0, 2), part.read(), part.seek(-3, 1), part.read()) == (
        10,
        b"",
        7,
        CONTENT[17:20],
    )
    assert (part.seek(2), part.tell(), part.read(3)) == (2, 2, CONTENT[12:15])
    part.close()
    assert file.closed
