"""A class name has one meaning in the package."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHARED = {"Options"}
"""The options class of an entry, which each plugin file may define."""


def classes_by_name(folders: list[Path]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            if "templates" not in path.parts:
                for name in re.findall(r"^class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
                    found[name].append(path.name)
    return found


def test_no_class_name_is_defined_twice() -> None:
    found = classes_by_name([ROOT / "harness", ROOT / "plugins"])
    assert len(found) > 300
    assert {name: files for name, files in found.items() if len(files) > 1 and name not in SHARED} == {}
