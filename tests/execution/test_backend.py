"""A backend that is not used is named in the log, after its stack has ended, and in reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headtohead import files
from headtohead.storage.stack import StackFolder

if TYPE_CHECKING:
    from .conftest import Study

WHY = "train.backend cuda-graphs is not used: CUDA graphs require a CUDA device"


def test_a_fallback_is_logged_and_reported(study: Study) -> None:
    study.write(base={"train": {"backend": "cuda-graphs", "steps": 4}})
    result = study.run("--device", "cpu")
    assert result.returncode == 0
    assert f"2 of 2 runs done; {WHY}" in result.stderr
    (stack,) = study.experiment.glob(".stacks/*")
    assert WHY in (stack / "worker.log").read_text()
    for path in study.experiment.glob("*/results.json"):
        results = files.read_json(path)
        assert results["backend"] == {"name": "eager", "why": "CUDA graphs require a CUDA device"}
        assert results["notes"] == [WHY]
    again = StackFolder(stack)
    again.note(WHY)
    again.note("another")
    assert again.record.notes == [WHY, "another"]
    page = (study.folder / "reports" / "tiny" / "report.md").read_text()
    assert f"2 runs: {WHY}." in page.replace("\\", "")
