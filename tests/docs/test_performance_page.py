"""The tables of docs/performance.md contain measured numbers only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
RESULTS = dict(
    section.split("\n", 1)
    for section in (ROOT / "benchmarks" / "results.md").read_text(encoding="utf-8").split("\n## ")[1:]
)
"""Sections of the page of results by the name of their script."""


def numbers(text: str) -> set[str]:
    return set(re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?", text))


def rows() -> list[tuple[str, list[str]]]:
    """Return every row of a table without its commands, and the benchmarks that its section names."""
    found = []
    for section in PAGE.split("\n## "):
        for row in re.findall(r"^\|.*\d.*\|$", section, re.MULTILINE):
            scripts = re.findall(r"benchmarks/(\w+)", section)
            found.append((re.sub(r"`[^`]*`", "", row), scripts))
    return found


@pytest.mark.parametrize(("row", "scripts"), rows(), ids=lambda value: str(value)[:40])
def test_a_number_of_a_table_occurs_in_the_results_of_its_benchmark(row: str, scripts: list[str]) -> None:
    measured = numbers("\n".join(RESULTS.get(script, "") for script in scripts))
    assert numbers(row) - measured == set()


def test_the_page_has_tables() -> None:
    assert len(rows()) > 15
