"""Sequences of writes, drawn at random but always the same, compared with a model after each step.

The model knows nothing of the store. After each step it predicts the export, the results of
searches and the changes, and `check` finds no derived table that differs from its definition.
"""

import copy
import hashlib
import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import document, version
from conftest import exported, run
from flask import Flask
from upstreams import FakeUpstream

from app import create_app

Step = tuple[Any, ...]
State = dict[str, dict[str, Any]]

SEARCH, CHANGES = "/api/v1/widgets/search", "/api/v1/widgets/changes"
PUBLIC_URL = "https://catalog.example.com"
PATHS = ["acme/clock", "acme/notes", "lab/clock", "lab/radar"]
# Of an upstream; its count there is always the same.
MIRRORED = "far/moon"
# A refresh would undo them.
REFUSED_ON_COPIES = {
    *("yank", "unyank", "deprecate", "undeprecate", "describe", "official", "unofficial"),
}
NUMBERS = ["1.0.0", "1.1.0", "2.0.0"]
RANGES = {"1.x": ["1.0.0", "1.1.0"], "*": NUMBERS}
TIMES = [f"2025-01-0{day}T00:00:00.000Z" for day in range(1, 4)]
WORDS = ["Clock", "Radar", "Été"]
SDK = "1.4.0"
# Whether a version with this range runs on the SDK.
ADMITS = {"^1.0.0": True, ">=1.2.0 <3": True, "*": True, "^2.0.0": False, "1.5.x": False}
STEPS = 36
SUMMARY_KEYS = (
    *("scope", "name", "displayName", "description", "icon"),
    *("isOfficial", "downloadCount"),
)


def complete(widget: dict[str, Any], versions: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a document as an export has it, its versions by their numbers."""
    optional = ("yankedReason", "deprecationMessage", "releaseNotes", "displayName", "description")
    defaults = {
        **dict.fromkeys((*optional, "icon", "configVersion", "license")),
        **{"yanked": False, "permissions": []},
        **{"minSize": {"w": 1, "h": 1}, "maxSize": {"w": 12, "h": 12}},
    }
    oldest = min((each["publishedAt"] for each in versions), default=None)
    return {
        "widget": {
            **dict.fromkeys(("description", "icon", "isOfficial", "downloadCount")),
            **{"createdAt": oldest, "listed": True},
            **widget,
        },
        "versions": {each["version"]: {**defaults, **each} for each in versions},
    }


def age(each: dict[str, Any]) -> tuple[Any, ...]:
    """Return the key by which versions are ordered."""
    return each["publishedAt"], [*map(int, each["version"].split("."))]


class Model:
    """What the catalog must contain."""

    def __init__(self) -> None:
        self.widgets: State = {}
        # Hashes of deleted versions.
        self.deleted: dict[tuple[str, str], set[str]] = {}
        self.once_listed: set[str] = set()

    def keep_deleted(self, replaced: "Model") -> None:
        """Add the hashes of versions that the replaced catalog had, or had deleted."""
        for key, hashes in replaced.deleted.items():
            self.deleted.setdefault(key, set()).update(hashes)
        for path, stored in replaced.widgets.items():
            own = self.widgets.get(path, {"versions": {}})["versions"]
            for number, entry in stored["versions"].items():
                sha256 = entry["sha256Hash"]
                if number not in own or own[number]["sha256Hash"] != sha256:
                    self.deleted.setdefault((path, number), set()).add(sha256)

    def listed(self) -> list[str]:
        """Return the paths of listed widgets in the order of a search."""
        found = [path for path, each in self.widgets.items() if each["widget"]["listed"]]

        def downloads(path: str) -> int:
            count = self.widgets[path]["widget"]["downloadCount"]
            return 1 if count is None else -count

        return sorted(found, key=lambda path: (downloads(path), path))

    def public(self) -> State:
        """Return what a change is about: the listed widgets without their counters."""
        documents = {path: copy.deepcopy(self.widgets[path]) for path in self.listed()}
        for each in documents.values():
            del each["widget"]["downloadCount"]
        return documents

    def export(self) -> list[dict[str, Any]]:
        return [
            {**each, "versions": sorted(each["versions"].values(), key=age, reverse=True)}
            for _, each in sorted(self.widgets.items())
        ]

    def latest(self, path: str, *, compatible: bool = False) -> dict[str, Any] | None:
        """Return the latest version of the widget, or the latest that runs on the SDK."""
        widget = self.widgets[path]["widget"]
        available = [
            each
            for each in self.widgets[path]["versions"].values()
            if not each["yanked"] and (ADMITS[each["sdkVersion"]] or not compatible)
        ]
        if not available:
            return None
        latest = max(available, key=age)
        names = {key: widget[key] for key in ("scope", "name")}
        own = ("displayName", "description", "icon")
        fallbacks = {key: widget[key] for key in own if latest[key] is None}
        return {**latest, **names, **fallbacks}

    def apply(self, step: Step) -> bool:
        """Change the model as the step changes the catalog; return whether it succeeds."""
        name, path, *arguments = step
        if name == "import":
            self.put(path, *arguments)
        elif name == "mirror":
            self.mirror(path)
        elif name == "publish":
            return self.publish(path, *arguments)
        elif (widget := path.partition("@")[0]) not in self.widgets or (
            widget == MIRRORED and name in REFUSED_ON_COPIES
        ):
            return False
        elif "@" in path:
            return self.change_versions(name, *path.split("@"), *arguments)
        else:
            self.change_widget(name, path, *arguments)
        return True

    def change_widget(self, name: str, path: str, *fields: dict[str, Any]) -> None:
        widget = self.widgets[path]["widget"]
        if name == "install":
            widget["downloadCount"] = (widget["downloadCount"] or 0) + 1
        elif name == "delete":
            self.delete(path, [*self.widgets[path]["versions"]])
            del self.widgets[path]
        elif name in ("unlist", "relist"):
            widget["listed"] = name == "relist"
        elif name in ("official", "unofficial"):
            widget["isOfficial"] = name == "official"
        else:
            # An empty text removes the old one.
            widget |= {key: value or None for key, value in fields[0].items()}

    def change_versions(self, name: str, path: str, numbers: str, text: str = "") -> bool:
        versions = self.widgets[path]["versions"]
        targets = [number for number in RANGES.get(numbers, [numbers]) if number in versions]
        if name == "delete":
            self.delete(path, targets)
        for each in (versions[number] for number in targets if number in versions):
            if name in ("yank", "unyank"):
                each["yanked"] = name == "yank"
                # Without a reason, an earlier one stays.
                each["yankedReason"] = (text or each["yankedReason"]) if each["yanked"] else None
            else:
                each["deprecationMessage"] = text or None
        return bool(targets)

    def delete(self, path: str, numbers: list[str]) -> None:
        for number in numbers:
            removed = self.widgets[path]["versions"].pop(number)
            self.deleted.setdefault((path, number), set()).add(removed["sha256Hash"])

    def put(self, documents: list[dict[str, Any]], prune: bool) -> None:
        paths = {f"{each['widget']['scope']}/{each['widget']['name']}": each for each in documents}
        if prune:
            for path in self.widgets.keys() - paths.keys():
                self.change_widget("delete", path)
        for path, each in paths.items():
            self.put_one(path, each, prune)

    def put_one(self, path: str, given: dict[str, Any], prune: bool) -> None:
        new = complete(given["widget"], given["versions"])
        if path in self.widgets:
            old = self.widgets[path]
            kept = {"listed", "createdAt", "downloadCount"} - given["widget"].keys()
            new["widget"] |= {key: old["widget"][key] for key in kept}
            # A count in the file never lowers the counter.
            counts = [each["widget"]["downloadCount"] for each in (old, new)]
            new["widget"]["downloadCount"] = max(
                counts, key=lambda count: -1 if count is None else count
            )
            if prune:
                self.delete(path, [*(old["versions"].keys() - new["versions"].keys())])
            new["versions"] = old["versions"] | new["versions"]
        self.widgets[path] = new

    def mirror(self, upstream: dict[str, Any]) -> None:
        """Copy the widget; the installs that were counted here are added to those of upstream."""
        count = upstream["widget"]["downloadCount"]
        if MIRRORED in self.widgets:
            count = self.widgets[MIRRORED]["widget"]["downloadCount"]
        widget = {**upstream["widget"], "downloadCount": count}
        self.put_one(MIRRORED, {**upstream, "widget": widget}, prune=True)

    def publish(self, path: str, number: str, fields: dict[str, Any], bundle: bytes) -> bool:
        sha256 = hashlib.sha256(bundle).hexdigest()
        described = {"displayName": fields["displayName"], "description": fields["description"]}
        published = {
            **{"version": number, **fields, "bundleUrl": bundle_url(path, number)},
            **{"bundleSize": len(bundle), "sha256Hash": sha256, "publishedAt": None},
        }
        if path in self.widgets and number in self.widgets[path]["versions"]:
            stored = self.widgets[path]["versions"][number]
            return all(stored[key] == published[key] for key in published if key != "publishedAt")
        if self.deleted.get((path, number), set()) - {sha256}:
            return False
        scope, name = path.split("/")
        new = complete({"scope": scope, "name": name, **described}, [published])
        self.widgets.setdefault(path, new)["versions"] |= new["versions"]
        return True

    def learn_times(self, documents: list[dict[str, Any]]) -> None:
        """Take the times of publications from the export; no other value is taken from there."""
        times: dict[tuple[str, str], str] = {}
        for each in documents:
            path = "{scope}/{name}".format(**each["widget"])
            times |= {(path, item["version"]): item["publishedAt"] for item in each["versions"]}
        for path, each in self.widgets.items():
            for number, stored in each["versions"].items():
                if stored["publishedAt"] is None:
                    stored["publishedAt"] = times.get((path, number), "")
                    if each["widget"]["createdAt"] is None:
                        each["widget"]["createdAt"] = stored["publishedAt"]


def bundle_url(path: str, number: str) -> str:
    """Return the URL of a published bundle; those of versions 2.0.0 are stored in the service."""
    if number == "2.0.0":
        return f"{PUBLIC_URL}/api/v1/widgets/{path}/{number}/bundle.js"
    return f"https://cdn.example.com/{path}/{number}.js"


class Draw:
    """Draws steps, always the same for a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311

    def steps(self, count: int) -> list[Step]:
        """Return steps that fill the catalog and back it up, and so many others."""
        filled = [self.document(path) for path in PATHS]
        return [("import", filled, True), ("backup", ""), *(self.step() for _ in range(count))]

    def step(self) -> Step:
        draw = self.random.choice
        own, path, number = draw(PATHS), draw([*PATHS, MIRRORED]), draw(NUMBERS)
        version_or_range = f"{path}@{draw([*NUMBERS, *RANGES])}"
        upstream = self.document(MIRRORED)
        upstream["widget"] |= {"downloadCount": 5, "createdAt": TIMES[0], "listed": True}
        steps: list[tuple[int, Step]] = [
            (3, ("publish", own, number, self.manifest(), draw([b"1", b"2"]))),
            (3, ("import", self.documents(), draw([False, False, True]))),
            (2, ("mirror", upstream)),
            (3, ("install", path)),
            (3, ("yank", version_or_range, draw(["", "Broken."]))),
            (2, ("unyank", version_or_range)),
            (2, ("deprecate", version_or_range, draw(["Old.", "Slow."]))),
            (1, ("undeprecate", version_or_range)),
            (2, ("describe", path, self.description())),
            (2, (draw(["official", "unofficial"]), path)),
            (3, (draw(["unlist", "relist"]), path)),
            (1, ("delete", path)),
            (2, ("delete", f"{path}@{number}")),
            (1, ("backup", "")),
            (1, ("restore", "")),
        ]
        weights, choices = zip(*steps, strict=True)
        return self.random.choices(choices, weights)[0]

    def manifest(self) -> dict[str, Any]:
        described = {"displayName": self.text(), "description": self.random.choice([None, "New."])}
        return {**described, "sdkVersion": self.random.choice([*ADMITS])}

    def text(self) -> str:
        return " ".join(self.random.sample(WORDS, self.random.randint(1, 2)))

    def description(self) -> dict[str, str]:
        key = self.random.choice(["displayName", "description", "icon"])
        return {key: {"displayName": self.text(), "icon": "mdi:radar"}.get(key, "")}

    def documents(self) -> list[dict[str, Any]]:
        paths = self.random.sample(PATHS, self.random.randint(1, 3))
        return [self.document(path) for path in paths]

    def document(self, path: str) -> dict[str, Any]:
        draw = self.random.choice
        numbers = self.random.sample(NUMBERS, self.random.randint(0, 3))
        fields: dict[str, Any] = {
            **{"displayName": self.text(), "isOfficial": draw([None, True, False])},
            **draw([{}, {}, {"listed": False}, {"listed": True}]),
            **draw([{}, {"downloadCount": draw([None, 0, 7])}]),
            # Without it, a widget without versions is created now.
            **({} if bool(numbers) and draw([True, False]) else {"createdAt": TIMES[0]}),
        }
        return document(path, *map(self.version, numbers), **fields)

    def version(self, number: str) -> dict[str, Any]:
        draw = self.random.choice
        values = {"publishedAt": draw(TIMES), "sdkVersion": draw([*ADMITS])}
        return version(number, **values, yanked=draw([False, False, True]))


class Catalog:
    """The catalog that the steps change, and the backup that a step restores."""

    def __init__(self, app: Flask, folder: Path, upstream: FakeUpstream) -> None:
        self.app, self.folder, self.upstream = app, folder, upstream
        self.backup = folder / "backup.db"
        self.token = ""

    def do(self, step: Step) -> bool:
        """Do the step; return whether it succeeds."""
        match step:
            case ("install", path):
                response = self.app.test_client().post(f"/api/v1/widgets/{path}")
                return response.status_code == 200
            case ("import", documents, prune):
                lines = "".join(json.dumps(each) + "\n" for each in documents)
                return self.run("import", "-", *["--prune", "--yes"] * prune, stdin=lines)
            case ("mirror", document):
                self.upstream.put(document)
                return self.run("mirror", self.upstream.url)
            case ("publish", path, number, fields, bundle):
                return self.run("publish", *self.publication(path, number, fields, bundle))
            case ("deprecate", target, message):
                return self.run("deprecate", target, "--message", message)
            case ("describe", path, fields):
                options = {"displayName": "--display-name"}
                pairs = ((options.get(key, f"--{key}"), text) for key, text in fields.items())
                return self.run("describe", path, *itertools.chain(*pairs))
            case ("yank", versions, reason):
                return self.run("yank", versions, *["--reason", reason] * bool(reason))
            case ("unofficial", path):
                return self.run("official", path, "--off")
            case ("backup", _):
                self.backup.unlink(missing_ok=True)
                return self.run("backup", self.backup)
            case ("restore", _):
                return self.run("restore", self.backup, "--yes")
            case ("delete", target):
                return self.run("delete", target, "--yes")
        return self.run(*step)

    def run(self, *arguments: object, stdin: str | None = None) -> bool:
        result = run(self.app, *arguments, stdin=stdin)
        assert result.exit_code in (0, 1), result.output
        return result.exit_code == 0

    def publication(
        self, path: str, number: str, fields: dict[str, Any], bundle: bytes
    ) -> list[Any]:
        """Return the arguments that publish the version."""
        scope, name = path.split("/")
        manifest = {"scope": scope, "name": name, "version": number, **fields}
        (self.folder / "widget.json").write_text(json.dumps(manifest), encoding="utf-8")
        (self.folder / "widget.js").write_bytes(bundle)
        url = ["--store"] if number == "2.0.0" else ["--bundle-url", bundle_url(path, number)]
        return [self.folder / "widget.json", self.folder / "widget.js", *url]

    def get(self, url: str) -> Any:
        response = self.app.test_client().get(url)
        assert response.status_code == 200, response.text
        return response.json

    def export(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in exported(self.app).splitlines()]

    def changes(self) -> dict[str, str]:
        """Return the kind of change of each widget since the last call."""
        page = self.get(f"{CHANGES}?limit=100&since={self.token}")
        assert page["more"] is False
        self.token = page["next"]
        kinds = {f"{each['scope']}/{each['name']}": each["kind"] for each in page["changes"]}
        assert len(kinds) == len(page["changes"])
        for each in page["changes"]:
            if each["kind"] == "changed":
                detail = self.app.test_client().get(
                    f"/api/v1/widgets/{each['scope']}/{each['name']}"
                )
                assert detail.headers["ETag"] == each["etag"]
        return kinds


def check_searches(catalog: Catalog, model: Model) -> None:
    """Compare the results of all widgets, and the totals of searches."""
    listed = model.listed()
    assert catalog.get(f"{SEARCH}?limit=100&compatSdk={SDK}")["widgets"] == [
        {
            **{key: model.widgets[path]["widget"][key] for key in SUMMARY_KEYS},
            "latestVersion": model.latest(path),
            "latestCompatibleVersion": model.latest(path, compatible=True),
        }
        for path in listed
    ]
    totals = {
        "scope=acme": [path for path in listed if path.startswith("acme/")],
        "official=true": [path for path in listed if model.widgets[path]["widget"]["isOfficial"]],
        "q=ete": [
            path for path in listed if WORDS[2] in model.widgets[path]["widget"]["displayName"]
        ],
        f"compatSdk={SDK}&compatible=true": [
            path for path in listed if model.latest(path, compatible=True)
        ],
    }
    for query, paths in totals.items():
        assert catalog.get(f"{SEARCH}?{query}")["total"] == len(paths), query


@pytest.fixture
def catalog(tmp_path: Path, upstream: FakeUpstream) -> Iterator[Catalog]:
    app = create_app({"DATABASE": tmp_path / "catalog.db", "PUBLIC_URL": PUBLIC_URL})
    assert run(app, "init").exit_code == 0
    yield Catalog(app, tmp_path, upstream)
    app.extensions["database"].close()


@pytest.mark.parametrize("seed", range(10))
def test_every_write_leaves_what_the_model_predicts(catalog: Catalog, seed: int) -> None:
    model = backup = Model()
    for step in Draw(seed).steps(STEPS):
        before = model.public()
        is_done = catalog.do(step)
        if step[0] == "backup":
            backup = copy.deepcopy(model)
        elif step[0] == "restore":
            replaced, model = model, copy.deepcopy(backup)
            model.keep_deleted(replaced)
            before, catalog.token = {}, ""
        else:
            assert model.apply(step) is is_done, step
        documents = catalog.export()
        model.learn_times(documents)
        assert documents == model.export(), step
        after = model.public()
        model.once_listed |= after.keys()
        kinds = {
            path: "changed" if path in after else "removed"
            for path in before.keys() | after.keys()
            if before.get(path) != after.get(path)
        }
        if step[0] == "restore":
            kinds |= dict.fromkeys(model.once_listed - after.keys(), "removed")
        assert catalog.changes() == kinds, step
        check_searches(catalog, model)
        check = run(catalog.app, "check")
        assert check.exit_code == 0, (step, check.stdout)
