"""Steps to target of a tiny trained study."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headtohead import files

if TYPE_CHECKING:
    from .conftest import Study


@pytest.mark.slow
def test_a_variant_that_learns_nothing_never_reaches_the_target(study: Study) -> None:
    study.write(
        base={"train": {"steps": 60, "evaluate_every": 20}, "evaluate": {"unpadded": False, "test_limit": 4}},
        design=[{"one_at_a_time": {"train.lr": [1e-9]}}],
        metrics={"primary": "valid/loss", "target": {"valid/loss": "baseline"}},
    )
    study.run()
    (target,) = files.read_json(study.folder / "reports/tiny/answer.json")["targets"]
    baseline, other = target["variants"].values()
    assert (baseline["reached"], baseline["median_steps"]) == (2, 60.0)
    assert (other["reached"], other["median_steps"], other["seeds_later"]) == (0, "inf", 2)
    assert "## Steps to target" in (study.folder / "reports/tiny/report.md").read_text()
