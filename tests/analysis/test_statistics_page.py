"""The page on statistics: its example, its numbers and its length."""

import re
from pathlib import Path

import pytest

from headtohead_judge.block_model import expected_degrees
from headtohead_judge.paired_tests import level_of_each
from headtohead_judge.power import minimum_detectable_effect

CONCEPTS = Path(__file__).parents[2] / "docs" / "concepts"
PAGE = (CONCEPTS / "statistics.md").read_text(encoding="utf-8")


def test_the_example_of_the_page_runs():
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(block, "docs/concepts/statistics.md", "exec"), {})


def test_the_page_is_at_most_2000_words_long():
    assert len(PAGE.split()) <= 2000


def test_the_table_of_detectable_differences_has_the_computed_values():
    counts = [int(count) for count in re.findall(r"(\d+) contrasts?(?= \|)", PAGE)]
    rows = re.findall(r"^\| (\d+) \|((?: [\d.]+ \|){4})$", PAGE, re.MULTILINE)
    assert (len(counts), len(rows)) == (4, 4)
    for seeds, cells in rows:
        for contrasts, cell in zip(counts, cells.split("|"), strict=False):
            degrees = expected_degrees(contrasts + 1, int(seeds))
            level = level_of_each(contrasts)
            effect = minimum_detectable_effect(1.0, int(seeds), level=level, degrees=degrees)
            assert float(cell) == pytest.approx(effect, abs=0.005)
