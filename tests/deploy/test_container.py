"""deploy/Containerfile, as far as it can be checked without an image."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from conftest import ROOT
from programs import find_program

from catalog.settings import DEFAULTS

DEPLOY = ROOT / "deploy"
CONTAINERFILE = DEPLOY / "Containerfile"
# A registry, a name and a tag with digits in it: not "latest".
PINNED_IMAGE = re.compile(r"[a-z.]+/[a-z/]+:[a-z-]*[0-9][0-9a-z.-]*")


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Containerfile with their arguments, in order."""
    text = re.sub(r"^#.*\n", "", CONTAINERFILE.read_text("utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [
        (name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines if line)
    ]


def arguments(name: str) -> list[str]:
    return [rest for each, rest in instructions() if each == name]


def last_stage() -> list[tuple[str, str]]:
    everything = instructions()
    return everything[max(i for i, (name, _) in enumerate(everything) if name == "FROM") :]


def environment() -> dict[str, str]:
    """Return the variables of the image."""
    (pairs,) = [rest for name, rest in last_stage() if name == "ENV"]
    return dict(pair.split("=", 1) for pair in pairs.split())


def health_check() -> list[str]:
    (check,) = arguments("HEALTHCHECK")
    command: list[str] = json.loads(check.partition("CMD ")[2])
    return command


def copied_files() -> list[str]:
    sources = [rest.split()[:-1] for rest in arguments("COPY") if not rest.startswith("--from=")]
    return [each for names in sources for each in names]


def assert_has_command(command: list[str]) -> None:
    """Fail unless the command line is one of widget-catalog that explains itself."""
    assert command[0] == "widget-catalog"
    line = [sys.executable, "-m", "catalog", *command[1:], "--help"]
    result = subprocess.run(line, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("name", copied_files())
def test_every_copied_file_exists(name: str) -> None:
    assert (ROOT / name).exists()


def test_the_wheel_is_built_from_everything_that_it_includes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    licenses = project["project"]["license-files"]
    data = [*wheel["force-include"], *wheel.get("shared-data", {})]
    included = [*wheel["packages"], *data, *licenses, project["project"]["readme"]]
    assert {Path(name).parts[0] for name in included} <= set(copied_files())


def test_no_copied_file_is_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert set(ignored) & set(copied_files()) == set()


def test_both_stages_have_the_same_base_with_a_tag() -> None:
    name, image = arguments("ARG")[0].split("=")
    assert [rest.split()[0] for rest in arguments("FROM")] == [f"${{{name}}}"] * 2
    assert PINNED_IMAGE.fullmatch(image)


def test_only_packages_with_known_hashes_are_downloaded() -> None:
    steps = [step for rest in arguments("RUN") for step in rest.split("&&") if "/pip " in step]
    assert len(steps) == 4
    assert all("--require-hashes" in step or "--no-index" in step for step in steps)


def test_the_image_runs_as_a_user_without_privileges() -> None:
    (user,) = [rest for name, rest in last_stage() if name == "USER"]
    uid, gid = map(int, user.split(":"))
    assert min(uid, gid) >= 1000
    assert any(f"--owner={uid} --group={gid} " in rest for rest in arguments("RUN"))


def test_the_database_is_on_the_only_volume() -> None:
    assert Path(environment()["CATALOG_DATABASE"]).parent == Path(*arguments("VOLUME"))


def test_the_exposed_port_is_the_one_that_is_served() -> None:
    assert arguments("EXPOSE") == [environment()["CATALOG_PORT"]]


def test_the_image_sets_only_settings() -> None:
    names = {name for name in environment() if name.startswith("CATALOG_")}
    assert {name.removeprefix("CATALOG_") for name in names} <= DEFAULTS.keys()


def test_the_image_starts_a_command_that_exists() -> None:
    assert_has_command(json.loads(arguments("ENTRYPOINT")[0]) + json.loads(arguments("CMD")[0]))


def test_the_health_check_is_a_command_that_exists() -> None:
    assert_has_command(health_check())


def test_the_description_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', arguments("LABEL")[0]))
    expected = (project["name"], project["description"], project["license"])
    assert (labels["title"], labels["description"], labels["licenses"]) == expected


def test_hadolint_has_no_complaint() -> None:
    line = [find_program("hadolint"), "--no-color", str(CONTAINERFILE)]
    result = subprocess.run(line, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, "")
