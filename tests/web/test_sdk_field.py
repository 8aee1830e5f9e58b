"""The SDK version in a form: complete, short, empty and invalid."""

import pytest

from catalog.web.parameters import SDK_ERROR, read_sdk


@pytest.mark.parametrize("text", ["1.4.0", "2.0.0-beta.1", "1.0.0+build"])
def test_complete_version_is_read_as_it_is(text: str) -> None:
    assert read_sdk(f" {text}\n") == (text, "", "")


@pytest.mark.parametrize(
    ("text", "sdk"),
    [
        ("1.4", "1.4.0"),
        ("1", "1.0.0"),
        ("0.10 ", "0.10.0"),
        ("20.0", "20.0.0"),
        ("v1.4.0", "1.4.0"),
        ("v2", "2.0.0"),
    ],
)
def test_missing_numbers_are_zero_and_a_v_is_ignored_and_the_notice_says_so(
    text: str, sdk: str
) -> None:
    assert read_sdk(text) == (sdk, f"{text.strip()} is read as {sdk}.", "")


@pytest.mark.parametrize(
    "text",
    ["vv1.4", "V1.4", "v", "1.", "1.4.x", "01.4", "1.4-beta", "^1.4", "１.4", "9" * 17, "1" * 5000],
)
def test_anything_else_is_invalid(text: str) -> None:
    assert read_sdk(text) == ("", "", SDK_ERROR)


def test_empty_field_is_no_sdk() -> None:
    assert read_sdk("  ") == ("", "", "")
