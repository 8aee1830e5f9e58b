"""What all apps of a process share in tests: compiled routes and templates.

To compile them takes most of create_app(), and of the first response with a page.
"""

from types import CodeType
from typing import Any

from flask import Flask
from jinja2 import FileSystemBytecodeCache
from jinja2.bccache import Bucket
from werkzeug.routing import Map, Rule


class SharedRule(Rule):
    """A route that all apps share."""

    def bind(self, map: Map, rebind: bool = False) -> None:
        if self.map is None:
            super().bind(map, rebind)


shared_rules: dict[str, SharedRule] = {}


def share_rule(rule: str, methods: set[str], **options: Any) -> SharedRule:
    """Return the same route for the same arguments."""
    key = str((rule, sorted(methods), options))
    return shared_rules.setdefault(key, SharedRule(rule, methods=methods, **options))


class SharedTemplates(FileSystemBytecodeCache):
    """Compiled templates in files, each read once for all apps."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.directory = directory
        self._codes: dict[tuple[str, str], CodeType] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        key = (bucket.key, bucket.checksum)
        bucket.code = self._codes.get(key)
        if bucket.code is None:
            super().load_bytecode(bucket)
        if bucket.code is not None:
            self._codes[key] = bucket.code


def share_parts(templates: str) -> None:
    """Let all apps share their routes, and their templates if there is a directory for them."""
    Flask.url_rule_class = staticmethod(share_rule)  # type: ignore[assignment]
    if templates:
        Flask.jinja_options["bytecode_cache"] = SharedTemplates(templates)


def templates_directory() -> str:
    """Return the directory of the compiled templates; it is empty if they are not shared."""
    shared = Flask.jinja_options.get("bytecode_cache")
    return shared.directory if isinstance(shared, SharedTemplates) else ""
