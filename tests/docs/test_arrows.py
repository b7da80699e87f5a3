"""The arrows between rooms are those of docs/internals/architecture.md, by every import."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HARNESS = ROOT / "harness" / "headtohead"
PLUGINS = ROOT / "plugins" / "headtohead_plugins"
PUBLIC_BEYOND_HEADTOHEAD = {
    "headtohead.data",
    "headtohead.experiment.schema.FilePath",
    "headtohead.experiment.schema.Neutral",
    "headtohead.experiment.schema.Runtime",
}


@dataclass(frozen=True)
class Import:
    """One imported name; ``for_types`` and ``deferred`` ones do not run when the file is loaded."""

    file: str
    name: str
    for_types: bool
    deferred: bool


def imports(path: Path, package: Path) -> Iterator[Import]:
    file = ".".join([package.name, *path.relative_to(package).with_suffix("").parts])
    file = file.removesuffix(".__init__")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    at_load = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: import by its full name"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            yield Import(file, name, id(node) in for_types, id(node) not in at_load)


def modules(package: Path) -> list[Path]:
    return [path for path in sorted(package.rglob("*.py")) if "__pycache__" not in path.parts]


@cache
def harness_imports() -> tuple[Import, ...]:
    return tuple(one for path in modules(HARNESS) for one in imports(path, HARNESS))


@cache
def plugin_imports() -> tuple[Import, ...]:
    return tuple(one for path in modules(PLUGINS) for one in imports(path, PLUGINS))


@cache
def files() -> frozenset[str]:
    names = (".".join(("headtohead", *path.relative_to(HARNESS).with_suffix("").parts))
             for path in modules(HARNESS))  # fmt: skip
    return frozenset(name.removesuffix(".__init__") for name in names)


def file_of(name: str) -> str:
    """Return the file that an imported name of headtohead lives in."""
    while name not in files():
        name = name.rpartition(".")[0]
    return name


def room_of(file: str) -> str:
    return file.split(".")[1] if "." in file else "headtohead"


def found_arrows() -> dict[str, set[str]]:
    """Return, by room, the files of other rooms that it imports, in whatever way."""
    arrows: dict[str, set[str]] = {}
    for one in harness_imports():
        if one.name.split(".")[0] == "headtohead":
            source, target = room_of(one.file), file_of(one.name)
            if room_of(target) not in (source, "headtohead"):
                arrows.setdefault(source, set()).add(target.removeprefix("headtohead."))
    return arrows


def written_arrows() -> dict[str, set[str]]:
    """Return the table of the page."""
    page = (ROOT / "docs" / "internals" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", page, re.MULTILINE)
    return {room: set(re.findall(r"`([\w.]+)`", targets)) for room, targets in rows}


ROOMS = sorted({room_of(file) for file in files()} - {"headtohead"})


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_what_the_page_says_and_nothing_else(room: str) -> None:
    written = written_arrows()[room]
    found = found_arrows().get(room, set())
    unwritten = {target for target in found if not written & {target, target.split(".")[0]}}
    used = {target for one in found for target in (one, one.split(".")[0])}
    unused = written - used
    assert (unwritten, unused) == (set(), set())


def test_no_two_files_import_each_other_around_any_corner_when_they_are_loaded() -> None:
    graph: dict[str, set[str]] = {}
    for one in harness_imports():
        if one.name.split(".")[0] == "headtohead" and not one.for_types and not one.deferred:
            target = file_of(one.name)
            if target not in ("headtohead", one.file):
                graph.setdefault(one.file, set()).add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' → '.join(error.args[1])}")


def test_only_tracking_imports_mlflow() -> None:
    rooms = {room_of(one.file) for one in harness_imports() if one.name.split(".")[0] == "mlflow"}
    assert rooms == {"tracking"}
    assert not any(one.name.split(".")[0] == "mlflow" for one in plugin_imports())


def test_headtohead_imports_no_plugin() -> None:
    assert [one for one in harness_imports() if one.name.startswith("headtohead_plugins")] == []


def test_nothing_imports_the_command_line() -> None:
    users = {one.file for one in harness_imports()
             if file_of_or_none(one.name).startswith("headtohead.cli")}  # fmt: skip
    assert {room_of(file) for file in users} == {"cli"}


def file_of_or_none(name: str) -> str:
    return file_of(name) if name.split(".")[0] == "headtohead" else ""


def test_plugins_import_only_public_names() -> None:
    from headtohead import __all__ as public

    private = {
        f"{one.file} imports {one.name}"
        for one in plugin_imports()
        if one.name.split(".")[0] == "headtohead"
        and one.name.removeprefix("headtohead.") not in public
        and one.name not in PUBLIC_BEYOND_HEADTOHEAD
        and one.name.rpartition(".")[0] not in PUBLIC_BEYOND_HEADTOHEAD
    }
    assert private == set()


def test_what_datasets_take_from_the_data_room_is_offered_there() -> None:
    from headtohead import data

    taken = {one.name.removeprefix("headtohead.data.") for one in plugin_imports()
             if one.name.startswith("headtohead.data.")}  # fmt: skip
    assert taken
    assert taken <= set(data.__all__)


def test_plugins_never_import_another_entry() -> None:
    """A folder beside an entry (toy/ beside toy_grammar.py) is a part of that entry."""
    crossing = set()
    for one in plugin_imports():
        if one.name.split(".")[0] == "headtohead_plugins":
            source, target = one.file.split("."), one.name.split(".")
            own_part = source[1] == target[1] and source[2].startswith(target[2])
            if not own_part:
                crossing.add(f"{one.file} imports {one.name}")
    assert crossing == set()
