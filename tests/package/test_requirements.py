"""Requirements: every package is pinned, with the hashes of its files."""

import re
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT

FILES = [ROOT / "requirements.txt", *sorted(ROOT.glob("requirements/*.txt"))]
PINNED = re.compile(r"[A-Za-z0-9_.-]+==[0-9][^ ;]*( ; [a-z_]+ [!<=]+ '[^']+')?")
HASH = re.compile("--hash=sha256:[0-9a-f]{64}")


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_line_is_a_pinned_package_with_hashes(file: Path) -> None:
    lines = file.read_text("utf-8").replace("\\\n", "").splitlines()
    packages = [each for each in lines if each and not each.startswith(("#", "-r "))]
    assert packages
    for package in packages:
        pin, *hashes = re.split(r" +(?=--)", package)
        assert PINNED.fullmatch(pin.strip()), package
        assert hashes
        assert all(HASH.fullmatch(each.strip()) for each in hashes), package


def test_audit_is_strict_about_packages_that_cannot_be_checked() -> None:
    dry_run = subprocess.run(
        ["make", "--dry-run", "audit"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "--strict" in dry_run.stdout.split()
