"""Pages use the words of the glossary: the words of retired-words.txt do not occur."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
NOT_YET_REWRITTEN = (
    "docs/internals/zoo.md",
    "docs/reference/catalogue/attention.md",
    "docs/reference/catalogue/dataset.md",
    "docs/reference/catalogue/positional.md",
    "docs/reference/cli.md",
    "docs/reference/invariants.md",
    "docs/reference/plugins.md",
)
"""Generated pages, whose words come from docstrings and help texts."""

GENERATED_TABLES = re.compile(r"<!-- table: .*?<!-- end of table -->", re.DOTALL)
"""Tables of the experiment file, whose words come from the schema: not yet rewritten either."""


def retired() -> list[re.Pattern[str]]:
    lines = (Path(__file__).parent / "retired-words.txt").read_text(encoding="utf-8").splitlines()
    return [
        re.compile(rf"\b(?:{line.replace(' ', chr(92) + 's+')})\b", re.IGNORECASE)
        for line in lines
        if line and not line.startswith("#")
    ]


def found_in(text: str) -> list[str]:
    return [match[0] for pattern in retired() for match in pattern.finditer(text)]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_has_no_retired_word(path: Path) -> None:
    found = found_in(GENERATED_TABLES.sub("", path.read_text(encoding="utf-8")))
    if str(path.relative_to(ROOT)) in NOT_YET_REWRITTEN:
        assert found, f"{path.name} has no retired word: remove it from NOT_YET_REWRITTEN"
    else:
        assert found == []


def test_retired_words_are_found_across_lines_and_in_any_case() -> None:
    text = "What is\nread is Told by `micro_batch`; nobody foretold what is ready."
    assert found_in(text) == ["Told", "What is\nread", "micro_batch"]
