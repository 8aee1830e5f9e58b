"""The layout: the direction of imports between folders."""

import ast
from pathlib import Path

import pytest
from conftest import ROOT

PACKAGE = ROOT / "catalog"
# From top to bottom. A part imports only from the layers below it and from its own folder.
LAYERS = [
    {"testing"},
    {"__main__"},
    {"application"},
    {"commands"},
    {"api", "web", "files", "mirror", "remote", "serving"},
    {"store"},
    {
        "routing",
        "settings",
        "documents",
        "validators",
        "text",
        "semver_ranges",
        "atomic_files",
        "data_files",
    },
]
FOLDERS = {
    *("api", "web", "commands", "files", "mirror", "remote", "serving", "store", "testing"),
}
WEB_PACKAGES = {"flask", "flask_cors", "werkzeug", "waitress", "click", "jinja2"}


def imports(path: Path) -> set[str]:
    """Return the dotted names that a module imports, at any level of the code."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def part_of(path: Path) -> str:
    """Return the folder of a module, or the module itself if it is in none."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def layer_of(part: str) -> int:
    return next(number for number, parts in enumerate(LAYERS) if part in parts)


def imported_parts(path: Path) -> set[str]:
    dotted = [name.split(".") for name in imports(path) if name.startswith("catalog.")]
    return {names[1] for names in dotted} - {"__version__", "V1_PREFIX"}


MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def test_every_module_imports_only_from_its_own_folder_and_from_below() -> None:
    assert len(MODULES) > 100
    for path in MODULES:
        others = imported_parts(path) - {part_of(path)}
        upward = {part for part in others if layer_of(part) < layer_of(part_of(path))}
        beside = {part for part in others if layer_of(part) == layer_of(part_of(path))}
        allowed = LAYERS[-1] if part_of(path) in LAYERS[-1] else set()
        assert (upward, beside - allowed) == (set(), set()), path


@pytest.mark.parametrize("folder", ["store", "files", "mirror", "remote"])
def test_folder_does_not_import_the_web_framework(folder: str) -> None:
    modules = [*(PACKAGE / folder).rglob("*.py"), PACKAGE / "documents.py", PACKAGE / "text.py"]
    packages = {name.split(".")[0] for path in modules for name in imports(path)}
    assert packages & WEB_PACKAGES == set()


def test_store_imports_only_modules_without_a_framework() -> None:
    parts = set().union(*(imported_parts(path) for path in (PACKAGE / "store").rglob("*.py")))
    modules = {"documents", "validators", "text", "semver_ranges", "atomic_files", "data_files"}
    assert parts - {"store"} <= modules


def test_the_package_shows_nine_folders_and_fewer_than_ten_modules() -> None:
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders == FOLDERS
    assert len(list(PACKAGE.glob("[!_]*.py"))) < 10


def test_only_the_widget_api_imports_flask_cors() -> None:
    importing = [path for path in MODULES if "flask_cors" in path.read_text(encoding="utf-8")]
    assert importing == [PACKAGE / "api" / "v1.py"]
