"""Names of downloaded files."""

import re


def bundle_file_name(name: str, version: str) -> str:
    """Return the file name for a version's bundle."""
    # Keep only characters without a special meaning in shells, file systems and sha256sum.
    stem = f"{name[:80]}-{version[:80]}"
    return re.sub(r"[^A-Za-z0-9._+-]+|^[.-]", "_", stem) + ".js"
