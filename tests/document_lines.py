"""The console lines and code blocks of the documents, and a directory to run them in."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from conftest import ROOT
from shell_commands import forked_commands

URL = "http://127.0.0.1:8080"
MARK = "--- end of output ---"


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def console_lines(text: str) -> list[tuple[str, str]]:
    """Return each command line after a $ with the output below it, in order."""
    pairs = []
    for block in blocks(text, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, output = part.partition("\n")
            pairs.append((line, output))
    return pairs


def checkout(directory: Path) -> Path:
    """Put the files of a clone that the service needs into the directory, and widget-catalog."""
    for name in (
        "app.py",
        "catalog",
        "pytest_widget_catalog",
        "schema.sql",
        "seed",
        "Makefile",
        "examples",
    ):
        (directory / name).symlink_to(ROOT / name)
    environment = directory / ".venv"
    (environment / "bin").mkdir(parents=True)
    for part in ("bin/python", "lib"):
        (environment / part).symlink_to(Path(sys.prefix) / part)
    shutil.copy(Path(sys.prefix) / "pyvenv.cfg", environment)
    activate = (Path(sys.prefix) / "bin" / "activate").read_text(encoding="utf-8")
    (environment / "bin" / "activate").write_text(activate.replace(sys.prefix, str(environment)))
    run_make(".venv/bin/widget-catalog", directory)
    return directory


def run_make(target: str, directory: Path) -> str:
    """Make the target in the directory; return what is printed."""
    # Without the variables of `make test`, which would change the output of this make.
    variables = {key: value for key, value in os.environ.items() if "MAKE" not in key}
    result = subprocess.run(
        ["make", target], cwd=directory, env=variables, capture_output=True, text=True, check=True
    )
    return result.stdout


def run_lines(lines: list[str], directory: Path, url: str = URL) -> list[str]:
    """Run the lines in one shell; return what each writes to standard output and error."""
    script = "".join(f"{line}\necho '{MARK}'\n" for line in lines).replace(URL, url)
    programs = directory / ".venv" / "bin"
    with forked_commands(programs / "widget-catalog"):
        result = subprocess.run(
            ["bash", "-c", f"exec 2>&1\n{script}"],
            cwd=directory,
            # Tokens are stored below HOME.
            env={
                **os.environ,
                "PATH": f"{programs}:{os.environ['PATH']}",
                "HOME": str(directory),
            },
            capture_output=True,
            text=True,
            timeout=300,
        )
    return result.stdout.replace(url, URL).split(f"{MARK}\n")[:-1]


def assert_outputs(pairs: list[tuple[str, str]], directory: Path, url: str = URL) -> None:
    """Run the lines; the output of each must be the one shown."""
    lines = [line for line, _ in pairs]
    printed = list(zip(lines, run_lines(lines, directory, url), strict=True))
    assert printed == pairs, [each for each in printed if each not in pairs]
