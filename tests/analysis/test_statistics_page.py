import re
from pathlib import Path

import pytest
from scipy.special import nctdtrinc, stdtrit

from headtohead_judge import paired_tests
from headtohead_judge.block_model import expected_degrees

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "concepts" / "statistics.md").read_text(encoding="utf-8")


def test_the_examples_of_the_page_run():
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 1
    for block in blocks:
        exec(compile(block, "docs/concepts/statistics.md", "exec"), {})


def test_the_table_of_smallest_p_values_equals_the_computed_values():
    rows = re.findall(r"^\| (\d+) \| (0\.\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 3
    for contrasts, floor, seeds in rows:
        smallest = {n: int(contrasts) * paired_tests.sign_flip_p([1.0] * n) for n in range(1, 20)}
        assert float(floor) == pytest.approx(smallest[6], abs=5e-4)
        assert int(seeds) == next(n for n, p in smallest.items() if p <= 0.05)


def test_the_table_of_minimum_detectable_effects_equals_the_noncentral_t():
    counts = [int(count) for count in re.findall(r"(\d+) contrasts?(?= \|)", PAGE)]
    rows = re.findall(r"^\| (\d+) \|((?: [\d.]+ \|){4})$", PAGE, re.MULTILINE)
    assert (len(counts), len(rows)) == (4, 4)
    for seeds, cells in rows:
        n = int(seeds)
        for contrasts, cell in zip(counts, cells.split("|"), strict=False):
            degrees = max(n - 1, min(10 + n - 1, contrasts * (n - 1)))
            critical = stdtrit(degrees, 1 - 0.05 / contrasts / 2)
            expected = nctdtrinc(degrees, 0.2, critical) / n**0.5
            assert float(cell) == pytest.approx(expected, rel=5e-4)
            assert expected_degrees(contrasts + 1, n) == degrees
            found = paired_tests.minimum_detectable_effect(
                1.0, n, level=paired_tests.ALPHA / contrasts, degrees=degrees
            )
            assert found == pytest.approx(expected, rel=2e-4)
