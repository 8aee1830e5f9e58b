"""The layout: the direction of imports between folders, and no circle of modules."""

import ast
import re
from collections.abc import Iterable
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from conftest import ROOT

PACKAGE = ROOT / "catalog"
# From top to bottom. A part imports only from the layers below it and from its own folder.
LAYERS = [
    {"__main__"},
    {"commands"},
    {"testing"},
    {"application"},
    {"opening"},
    {"api", "web", "files", "mirror", "remote", "serving"},
    {"store"},
    {"settings"},
    {"system"},
    {"domain"},
]
WEB_PACKAGES = {"flask", "flask_cors", "werkzeug", "waitress", "click", "jinja2"}
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Return the syntax tree of a module as a list."""
    return [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]


@cache
def imports(path: Path) -> set[str]:
    """Return the dotted names that a module imports, at any level of the code."""
    names: set[str] = set()
    for node in nodes(path):
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


# Inside the store, from top to bottom.
STORE_LAYERS = [{"maintenance"}, {"read", "write"}, {"bundles"}, {"connection"}, {"schema"}]


def test_every_module_of_the_store_imports_only_from_its_own_folder_and_from_below() -> None:
    layers = {part: number for number, parts in enumerate(STORE_LAYERS) for part in parts}
    for path in python_files(PACKAGE / "store"):
        parts = path.relative_to(PACKAGE / "store").parts
        if parts == ("__init__.py",):
            continue
        dotted = [name.split(".") for name in imports(path) if name.startswith("catalog.store.")]
        # A write may read what it changes, but no read writes.
        own = {parts[0], "read"} if parts[0] == "write" else {parts[0]}
        others = {names[2] for names in dotted} - own
        assert {each for each in others if layers[each] <= layers[parts[0]]} == set(), path


def test_store_has_no_module_beside_its_folders() -> None:
    assert {path.name for path in (PACKAGE / "store").glob("*.py")} == {"__init__.py"}
    assert folders_of(PACKAGE / "store") == {each for layer in STORE_LAYERS for each in layer}


def test_at_most_five_modules_are_beside_the_folders() -> None:
    assert len([path for path in PACKAGE.glob("*.py") if path.name != "__init__.py"]) <= 5


SQL = re.compile(
    r"\b(SELECT\s.*\bFROM|INSERT\s+INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM)\b", re.DOTALL
)


def texts(path: Path) -> Iterable[str]:
    """Return the strings of a module, also the parts of f-strings."""
    for node in nodes(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_sql_is_in_the_store_only() -> None:
    assert any(SQL.search(text) for path in python_files(PACKAGE / "store") for text in texts(path))
    for path in MODULES:
        if part_of(path) != "store":
            assert [text for text in texts(path) if SQL.search(text)] == [], path
