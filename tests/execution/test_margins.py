"""A margin that is changed between two calls of the command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headtohead import files

if TYPE_CHECKING:
    from .conftest import Study


@pytest.mark.slow
def test_a_margin_that_is_changed_after_results_existed_is_labelled(study: Study) -> None:
    def report() -> str:
        study.run()
        return (study.folder / "reports/tiny/report.md").read_text()

    study.write(margin=0.02, seeds=1)
    hashes = {path.name for path in study.directories()}
    assert "is 0.020 exact match, set before these runs" in report()
    since = files.read_json(study.experiment / "experiment.json")["margins"]["test/exact_match"]["since"]
    assert "is 0.020 exact match, set before these runs" in report()
    study.write(margin=0.05, seeds=1)
    assert f"is 0.050 exact match; it was set after results existed, on {since[:8]}" in report()
    study.write(margin=0.02, seeds=1)
    assert "is 0.020 exact match; it was set after results existed" in report()
    assert hashes <= {path.name for path in study.directories()}
    assert len(study.directories()) == 1
    study.write(margin=0.07, seeds=1, base={"train": {"lr": 0.004}})
    assert "is 0.070 exact match; it was set after results existed" in report()
    assert len(study.directories()) == 2
    study.write(margin=0.08, seeds=[7])
    assert "is 0.080 exact match, set before these runs" in report()
