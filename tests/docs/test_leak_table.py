"""The table of leak-free and leaky scores in docs/concepts/data-splits.md, recomputed from the committed report."""

import re
from pathlib import Path

import pandas as pd
import pytest
from scipy import stats

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "concepts" / "data-splits.md").read_text(encoding="utf-8")
SCORE = r"([\d.]+) \(([\d.]+) to ([\d.]+)\)"
ROWS = re.findall(
    rf"^\| (tatoeba-leak\S*) \| [^|]+ \| `(\w+)` \| ([\d.]+) % \| {SCORE} \| {SCORE} \| ([\d.]+) \|$",
    PAGE,
    re.MULTILINE,
)


COMMITTED = [row for row in ROWS if (ROOT / "reports" / row[0]).is_dir()]


def test_the_table_has_both_splits_of_every_experiment() -> None:
    names = {"tatoeba-leak", "tatoeba-leak-eng-fra", "tatoeba-leak-eng-vie"}
    assert {row[:2] for row in ROWS} == {(name, split) for name in names for split in ("grouped", "row")}
    assert len(COMMITTED) >= 2


@pytest.mark.parametrize("row", COMMITTED, ids="-".join)
def test_scores_and_intervals_are_those_of_the_report(row: tuple[str, ...]) -> None:
    name, split, leak, *scores, neighbour = row
    results = pd.read_csv(ROOT / "reports" / name / "results.csv")
    for metric, printed in (("test/bleu", scores[:3]), ("test/chrf", scores[3:])):
        values = results.loc[results["data.split"] == split, metric]
        low, high = stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values))
        assert printed == [f"{number:.1f}" for number in (values.mean(), low, high)]
    text = (ROOT / "reports" / name / "report.md").read_text(encoding="utf-8")
    own_row = f"| nearest neighbour | 0.000 | {neighbour} |"  # of the baseline's test set
    assert (own_row if split == "grouped" else f"nearest-neighbour translation ({neighbour} BLEU)") in text
    assert (float(leak) == 0) == (split == "grouped")
