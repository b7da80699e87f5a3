"""The host's behaviour depends on no plugin by name."""

import ast
from pathlib import Path

from headtohead.plugins.registry import current

HOST = Path(__file__).parents[2] / "harness"
NAMES = {name for entries in current().entries.values() for name in entries if "-" in name}
"""Names with a hyphen only: `none` and `random` are also values of fields."""


def compared_names(source: str) -> list[str]:
    """Return the entry names that an ``==``, ``!=`` or ``in`` of the source compares with."""
    found: list[str] = []
    if not any(name in source for name in NAMES):
        return found
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            constants = [part for part in ast.walk(node) if isinstance(part, ast.Constant)]
            found += [
                part.value
                for part in constants
                if isinstance(part.value, str) and part.value in NAMES
            ]
    return found


def test_no_condition_of_the_host_names_a_plugin() -> None:
    found = {
        str(path): compared_names(path.read_text(encoding="utf-8")) for path in HOST.rglob("*.py")
    }
    assert {path: names for path, names in found.items() if names} == {}
