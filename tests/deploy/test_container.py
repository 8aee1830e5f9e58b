"""deploy/container, as far as it can be checked without an image."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml
from conftest import ROOT
from programs import find_program

from catalog.settings import DEFAULTS, read_setting

CONTAINER = ROOT / "deploy" / "container"
CONTAINERFILE = CONTAINER / "Containerfile"
TEXT = CONTAINERFILE.read_text("utf-8").replace("\\\n", " ")


def test_everything_that_the_wheel_includes_is_copied_from_the_repository() -> None:
    copied = [
        name
        for line in re.findall(r"^COPY (?!--from)(.*) \S+$", TEXT, re.MULTILINE)
        for name in line.split()
    ]
    ignored = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert [name for name in copied if not (ROOT / name).exists() or name in ignored] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    included = [*wheel["packages"], *wheel["force-include"], *wheel["shared-data"]]
    included += [*project["project"]["license-files"], project["project"]["readme"]]
    missing = [
        name for name in included if not any(Path(name).is_relative_to(each) for each in copied)
    ]
    assert missing == []


def test_only_packages_with_known_hashes_are_downloaded() -> None:
    runs = re.findall(r"^RUN (.*)$", TEXT, re.MULTILINE)
    steps = [step for each in runs for step in each.split("&&") if "/pip " in step]
    assert len(steps) == 4
    assert all("--require-hashes" in step or "--no-index" in step for step in steps)


def test_the_image_starts_and_checks_commands_that_exist_with_settings_that_exist() -> None:
    (entry,), (serve,) = (
        re.findall(rf"^{name} (\[.*\])$", TEXT, re.MULTILINE) for name in ("ENTRYPOINT", "CMD")
    )
    (check,) = re.findall(r"^HEALTHCHECK .* CMD (\[.*\])$", TEXT, re.MULTILINE)
    for command in (json.loads(entry) + json.loads(serve), json.loads(check)):
        assert command[0] == "widget-catalog"
        line = [sys.executable, "-m", "catalog", *command[1:], "--help"]
        assert subprocess.run(line, cwd=ROOT, capture_output=True).returncode == 0
    compose = yaml.safe_load((CONTAINER / "compose.yaml").read_text("utf-8"))
    settings = {*re.findall(r"\bCATALOG_(\w+)=", TEXT)}
    settings |= {
        name.removeprefix("CATALOG_") for name in compose["services"]["catalog"]["environment"]
    }
    assert settings <= DEFAULTS.keys()


def test_the_service_trusts_caddy_whichever_network_docker_or_podman_chooses() -> None:
    compose = yaml.safe_load((CONTAINER / "compose.yaml").read_text("utf-8"))
    catalog = compose["services"]["catalog"]
    trusted = read_setting("TRUSTED_PROXY", catalog["environment"])
    for address in ("172.18.0.3", "192.168.16.3", "10.89.0.3"):
        assert trusted.include(address)
    # So nobody else can connect.
    assert "ports" not in catalog


def test_containers_rotate_their_logs_and_keep_backups_in_a_volume() -> None:
    compose = yaml.safe_load((CONTAINER / "compose.yaml").read_text("utf-8"))
    for service in compose["services"].values():
        assert service["logging"]["options"] == {"max-size": "10m", "max-file": "5"}
    assert "backups:/backups" in compose["services"]["catalog"]["volumes"]
    # A new volume gets the owner of the directory in the image.
    assert re.search(r"^RUN install .*--owner=10001 .* /data /backups$", TEXT, re.MULTILINE)


def test_hadolint_has_no_complaint() -> None:
    line = [find_program("hadolint"), "--no-color", str(CONTAINERFILE)]
    result = subprocess.run(line, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, "")
