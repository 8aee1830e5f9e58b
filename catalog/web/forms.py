"""Fields that several pages have in common."""

import re
from typing import NamedTuple

from catalog.semver_ranges import is_version

# The API's message is about URL encoding, which the browser does for a form.
SDK_ERROR = "An SDK version is three numbers without a v, such as 1.4.0."
# One or two numbers, of which a person leaves out the zeros.
SHORT_VERSION = re.compile(r"(0|[1-9][0-9]*)(?:\.(0|[1-9][0-9]*))?", re.ASCII)


class SdkField(NamedTuple):
    """The SDK version that a field contains, empty if it has none or is invalid.

    notice says that the version was completed, error why it is invalid; each is empty otherwise.
    """

    sdk: str
    notice: str
    error: str


def read_sdk(text: str) -> SdkField:
    """Return the SDK version in the text; 1.4 is read as 1.4.0."""
    # Copied text often ends with a space.
    text = text.strip()
    if not text or is_version(text):
        return SdkField(text, "", "")
    match = SHORT_VERSION.fullmatch(text)
    completed = f"{match[1]}.{match[2] or 0}.0" if match else ""
    if not is_version(completed):
        return SdkField("", "", SDK_ERROR)
    return SdkField(completed, f"{text} is read as {completed}.", "")
