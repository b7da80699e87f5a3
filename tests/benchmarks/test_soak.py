"""The soak test: kills lose nothing, and a planted fault is found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def soak(benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark("soak")


def test_the_table_counts_by_target(soak: ModuleType) -> None:
    outcomes = {target: soak.Outcome() for target in soak.TARGETS}
    outcomes["worker"] = soak.Outcome(lost=1, unequal=2, repeated=3)
    table = soak.report(Counter(worker=8, parent=2), outcomes, Counter(worker=1, parent=1))
    assert table.splitlines()[2:] == [
        "| parent | 2 | 1 | 0 | 0 | 0 |",
        "| worker | 8 | 1 | 1 | 2 | 3 |",
        "| **total** | 10 | 2 | 1 | 2 | 3 |",
    ]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kills_lose_nothing(soak: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "soak.md"
    code = soak.main(["--kills", "3", "--seed", "3", "--folder", str(tmp_path / "studies"), "--write", str(page)])
    assert code == 0, capsys.readouterr().out
    assert "| any of these | 3 | 1 | 0 | 0 | 0 |" in page.read_text()


DAMAGING = """
import json

import headtohead as h2h
from headtohead.storage.run_directory import checksums

@h2h.plugin.hookimpl
def on_run_end(run, state):
    (run / "translations.tsv").write_text("{pause}")
    status = json.loads((run / "status.json").read_text())
    (run / "status.json").write_text(json.dumps(status | {{"files": checksums(run)}}))
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_difference_is_found(
    soak: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(soak, "SLOW", DAMAGING)
    assert soak.main(["--kills", "1", "--folder", str(tmp_path / "studies"), "--targets", "shipper"]) == 1
    printed = capsys.readouterr().out
    assert "translations differ" in printed
    assert f"are kept in {tmp_path}/studies" in printed
