"""A trained study with two datasets and declared contrasts: its tests, its answer and its report."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import scipy.stats
import yaml

from headtohead.storage.frames import load_frames

METRIC = "test/token_accuracy"

STUDY: dict[str, Any] = {
    "question": "Does rotary help on both datasets?",
    "base": {
        "data": {"dataset": "toy-grammar", "size": 200},
        "model": {"d_model": 8, "heads": 2, "layers": 1, "d_ff": 8, "dropout": 0.0},
        "train": {"steps": 6, "batch_tokens": 128},
        "evaluate": {"decode": "none"},
    },
    "baseline": {"positional": "sinusoidal"},
    "design": [
        {
            "product": {
                "positional": ["sinusoidal", "rotary"],
                "data": [{"dataset": "toy-grammar", "size": 200}, {"dataset": "reverse", "size": 200}],
            }
        }
    ],
    "contrasts": [
        {"variant": {"positional": "rotary"}, "name": "rotary on the grammar"},
        {
            "variant": {"positional": "rotary", "data": "reverse"},
            "against": {"positional": "sinusoidal", "data": "reverse"},
        },
    ],
    "metrics": {"primary": METRIC, "report": ["valid/loss"]},
    "seeds": 3,
}


@pytest.fixture(scope="module")
def folder(
    tmp_path_factory: pytest.TempPathFactory,
    h2h_here: Callable[..., Any],
    no_figures: Callable[[], AbstractContextManager[None]],
) -> Path:
    folder = tmp_path_factory.mktemp("two-datasets")
    (folder / "two.yaml").write_text(yaml.safe_dump(STUDY, sort_keys=False))
    with no_figures():
        done = h2h_here(folder, "run", "two.yaml", "--no-tracking", H2H_CACHE=str(folder / "cache"))
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_every_contrast_is_a_paired_test_on_the_same_data(folder: Path) -> None:
    frames = load_frames(folder / "runs" / "two")
    contrasts = json.loads((folder / "reports" / "two" / "answer.json").read_text("utf-8"))["contrasts"]
    grammar, other = "toy-grammar-size-200", "reverse-size-200"

    def difference(data: str) -> list[float]:
        left, right = (frames.scores(f"{name}-{data}", METRIC) for name in ("rotary", "sinusoidal"))
        return [left[seed] - right[seed] for seed in (1, 2, 3)]

    p = [float(scipy.stats.ttest_1samp(difference(data), 0).pvalue) for data in (grammar, other)]
    declared = [contrast for contrast in contrasts if contrast["family"] == "declared"]
    assert [contrast["name"] for contrast in declared] == [
        "rotary on the grammar",
        "rotary · reverse(size=200) − sinusoidal · reverse(size=200)",
    ]
    assert min(contrast["holm_p"] for contrast in declared) == pytest.approx(min(1, 2 * min(p)))
    for contrast, data in zip(declared, (grammar, other), strict=True):
        assert contrast["difference"] == pytest.approx(sum(difference(data)) / 3)
    (factor,) = [contrast for contrast in contrasts if contrast["family"] == "factors"]
    assert factor["difference"] == pytest.approx(sum(difference(grammar) + difference(other)) / 6)
    (interaction,) = [contrast for contrast in contrasts if contrast["family"] == "interactions"]
    assert interaction["difference"] == pytest.approx((sum(difference(other)) - sum(difference(grammar))) / 3)
    assert len(contrasts) == 2 + 1 + 1 + 2
    assert all(contrast["difference"] is not None for contrast in contrasts)


@pytest.mark.slow
def test_the_report_answers_the_declared_contrasts_and_ranks_within_each_dataset(folder: Path) -> None:
    answer = json.loads((folder / "reports" / "two" / "answer.json").read_text("utf-8"))
    assert "rotary · reverse(size=200) − sinusoidal · reverse(size=200): " in answer["answer"]
    assert "rotary on the grammar: " in answer["answer"]
    order = list(answer["scores"])
    assert [slug.partition("-")[2] for slug in order] == ["toy-grammar-size-200"] * 2 + ["reverse-size-200"] * 2
    page = (folder / "reports" / "two" / "report.md").read_text("utf-8")
    section = page.partition("## Declared contrasts")[2].partition("\n## ")[0]
    assert "rotary on the grammar" in section
    assert "Family declared: with 2 contrasts and 3 seeds" in page


@pytest.mark.slow
def test_the_plan_lists_the_declared_contrasts_and_their_power(folder: Path, h2h_here: Callable[..., Any]) -> None:
    planned = h2h_here(folder, "plan", "two.yaml", H2H_CACHE=str(folder / "cache")).stdout
    assert "contrasts that the file declares:\n  rotary on the grammar\n" in planned
    assert "2 declared contrasts on 3 seeds: MDE" in planned
