import re
from pathlib import Path

import pytest

from headtohead.analysis import statistics

PAGE = (Path(__file__).parents[2] / "docs" / "statistics.md").read_text(encoding="utf-8")


def test_the_examples_of_the_page_run():
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 1
    for block in blocks:
        exec(compile(block, "docs/statistics.md", "exec"), {})


def test_the_pages_table_of_floors_is_what_the_code_computes():
    rows = re.findall(r"^\| (\d+) \| (0\.\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 3
    for contrasts, floor, seeds in rows:
        assert float(floor) == pytest.approx(
            statistics.sign_flip_floor(int(contrasts), 6), abs=5e-4
        )
        assert int(seeds) == statistics.seeds_needed(int(contrasts))
