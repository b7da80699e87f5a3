"""The summary run of a study in a real MLflow store has the answer of the report that `h2h run` writes."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mlflow import MlflowClient

from headtohead import api

if TYPE_CHECKING:
    from .conftest import Study

SECONDS = 4.0
"""Longer than the shipper needs to end once it may."""


@pytest.mark.slow
def test_the_summary_run_has_the_answer_of_a_report_that_takes_long(
    study: Study, store_template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copyfile(store_template, study.folder / "mlflow.db")
    write = api.write_report

    def written(*arguments: Any, **options: Any) -> Any:
        time.sleep(SECONDS)
        return write(*arguments, **options)

    monkeypatch.setattr(api, "write_report", written)
    study.write(
        base={"train": {"steps": 4}, "evaluate": {"unpadded": False, "test_limit": 4}},
        design=[{"one_at_a_time": {"positional": ["none"]}}],
    )
    reports = study.folder / "elsewhere"
    study.run("--reports", str(reports), tracking=True)
    client = MlflowClient(f"sqlite:///{study.folder / 'mlflow.db'}")
    index = client.get_experiment_by_name("headtohead studies")
    assert index is not None
    (summary,) = client.search_runs([index.experiment_id])
    answer = json.loads((reports / "tiny" / "answer.json").read_text("utf-8"))["answer"]
    assert summary.data.tags["h2h.verdicts"].startswith("baseline: sinusoidal")
    assert answer.split()[0] in summary.data.tags["mlflow.note.content"]
    folder = Path(client.download_artifacts(summary.info.run_id, "report", str(study.folder)))
    for name in ("report.md", "answer.json"):
        assert (folder / name).read_bytes() == (reports / "tiny" / name).read_bytes()
