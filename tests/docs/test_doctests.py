"""Every example in a docstring of the package and its plugins runs and prints what it states."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = [
    path
    for folder in ("harness", "plugins")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if ">>>" in path.read_text(encoding="utf-8")
]


def module_name(path: Path) -> str:
    """Return the name under which a file is imported."""
    parts = path.with_suffix("").relative_to(ROOT).parts
    roots = 2 if parts[:2] == ("harness", "judge") else 1
    return ".".join(parts[roots:])


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_examples_print_what_they_state(path: Path) -> None:
    result = doctest.testmod(importlib.import_module(module_name(path)))
    assert result.attempted > 0
    assert result.failed == 0
