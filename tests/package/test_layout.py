"""The layout: the direction of imports between folders, and no circle of modules."""

import ast
from collections.abc import Iterable
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from conftest import ROOT

PACKAGE = ROOT / "catalog"
# From top to bottom; the modules beside the folders are below all of them. A part imports only
# from the layers below it and from its own folder.
LAYERS = [
    {"__main__"},
    {"commands"},
    {"testing"},
    {"application"},
    {"opening"},
    {"api", "web", "files", "mirror", "remote", "serving"},
    {"store"},
]
STORE_FOLDERS = {"connection", "schema", "read", "write"}
WEB_PACKAGES = {"flask", "flask_cors", "werkzeug", "waitress", "click", "jinja2"}
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def imports(path: Path) -> set[str]:
    """Return the dotted names that a module imports, at any level of the code."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            folder = path.relative_to(ROOT).parts[: -node.level] if node.level else ()
            module = ".".join([*folder, *([node.module] if node.module else [])])
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return names


def part_of(path: Path) -> str:
    """Return the folder of a module, or the module itself if it is in none."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def layer_of(part: str) -> int:
    return next((number for number, parts in enumerate(LAYERS) if part in parts), len(LAYERS))


def imported_parts(path: Path) -> set[str]:
    dotted = [name.split(".") for name in imports(path) if name.startswith("catalog.")]
    return {names[1] for names in dotted} - {"__version__", "V1_PREFIX"}


def imported_packages(paths: Iterable[Path]) -> set[str]:
    """Return the packages that these modules import, or the modules beside the folders for them."""
    packages: set[str] = set()
    seen, waiting = set(), [*paths]
    while waiting:
        path = waiting.pop()
        if path not in seen and path.exists():
            seen.add(path)
            packages |= {name.split(".")[0] for name in imports(path)}
            waiting += [PACKAGE / f"{part}.py" for part in imported_parts(path)]
    return packages


def python_files(folder: Path) -> list[Path]:
    files = sorted(folder.rglob("*.py"))
    assert files, folder
    return files


def folders_of(folder: Path) -> set[str]:
    """Return the names of the folders of modules in a folder."""
    return {path.parent.name for path in folder.glob("*/*.py")}


def imported_modules(path: Path) -> set[Path]:
    """Return the modules of the package that a module imports, for types only too."""
    modules = set()
    for name in imports(path):
        if name.split(".")[0] == PACKAGE.name:
            target = ROOT.joinpath(*name.split("."))
            # The name of a module, of a folder, or of something in one of them.
            files = [target.with_suffix(".py"), target / "__init__.py"]
            files += [target.parent.with_suffix(".py"), target.parent / "__init__.py"]
            modules.add(next(file for file in files if file.exists()))
    return modules


def test_every_folder_has_its_place() -> None:
    parts = {part_of(path) for path in MODULES}
    assert {part for layer in LAYERS for part in layer} <= parts
    assert {part for part in folders_of(PACKAGE) if layer_of(part) == len(LAYERS)} == set()
    assert folders_of(PACKAGE / "store") >= STORE_FOLDERS


def test_no_module_imports_itself_over_others() -> None:
    graph = {path: imported_modules(path) for path in python_files(PACKAGE)}
    assert any(graph.values())
    # It raises CycleError with the modules of a circle.
    TopologicalSorter(graph).prepare()


def test_every_module_imports_only_from_its_own_folder_and_from_below() -> None:
    for path in MODULES:
        part, layer = part_of(path), layer_of(part_of(path))
        # The modules beside the folders import each other.
        allowed = layer if layer == len(LAYERS) else layer + 1
        wrong = {other for other in imported_parts(path) - {part} if layer_of(other) < allowed}
        assert wrong == set(), path


@pytest.mark.parametrize("folder", ["store", "files", "mirror", "remote"])
def test_folder_does_not_import_the_web_framework(folder: str) -> None:
    assert imported_packages(python_files(PACKAGE / folder)) & WEB_PACKAGES == set()


def test_the_client_of_a_service_does_not_import_the_store() -> None:
    for path in (PACKAGE / "remote").rglob("*.py"):
        assert "store" not in imported_parts(path), path


def test_of_the_commands_only_serve_imports_the_web_framework() -> None:
    others = [path for path in (PACKAGE / "commands").rglob("*.py") if path.stem != "serve"]
    both = [*others, PACKAGE / "__main__.py", PACKAGE / "opening.py"]
    assert imported_packages(both) & (WEB_PACKAGES - {"click"}) == set()


@pytest.mark.parametrize(
    ("folder", "others"),
    [
        ("schema", {"connection", "read", "write"}),
        ("connection", {"read", "write"}),
        ("read", {"write"}),
    ],
)
def test_folder_of_store_does_not_import_those_above_it(folder: str, others: set[str]) -> None:
    for path in python_files(PACKAGE / "store" / folder):
        dotted = [name.split(".") for name in imports(path) if name.startswith("catalog.store.")]
        assert {names[2] for names in dotted} & others == set(), path
