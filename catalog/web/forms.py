"""Fields that several pages have in common."""

from typing import NamedTuple

from ..semver_ranges import parse_sdk

# The API's message is about URL encoding, which the browser does for a form.
SDK_ERROR = "An SDK version is three numbers, such as 1.4.0."


class SdkField(NamedTuple):
    """The SDK version that a field contains, empty if it has none or is invalid.

    notice says that the version was completed, error why it is invalid; each is empty otherwise.
    """

    sdk: str
    notice: str
    error: str


def read_sdk(text: str) -> SdkField:
    """Return the SDK version in the text; 1.4 and v1.4.0 are read as 1.4.0."""
    # Copied text often ends with a space.
    text = text.strip()
    if not text:
        return SdkField("", "", "")
    try:
        sdk = parse_sdk(text)
    except ValueError:
        return SdkField("", "", SDK_ERROR)
    return SdkField(sdk, "" if sdk == text else f"{text} is read as {sdk}.", "")
