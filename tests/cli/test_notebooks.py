"""``h2h notebooks``, end to end, in a very small form."""

import importlib
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from made import error_line

Completed = subprocess.CompletedProcess[str]
Call = Callable[..., Completed]
FIELDS = {"train.epochs": 1, "train.warmup_steps": 0, "data.size": 60, "evaluate.test_limit": 2}
SMALL = ("--only", "positions-fixed-or-learned")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("notebooks")


@pytest.fixture(scope="module")
def call(folder: Path, h2h_here: Call, no_figures: Any) -> Iterator[Call]:
    """Call ``h2h notebooks`` in the folder, with a very small quick form and without figures in the reports."""
    with no_figures(), pytest.MonkeyPatch.context() as patch:
        small = {"positions-fixed-or-learned": {"seeds": 2, "base": FIELDS}}
        editions = importlib.import_module(
            "headtohead_notebooks.page.editions"
        )  # not the function of that name
        patch.setattr(editions, "load_descriptions", lambda name: small)
        yield partial(h2h_here, folder, "notebooks", H2H_CACHE=str(folder / "cache"))


@pytest.fixture(scope="module")
def first(call: Call) -> Completed:
    return call(*SMALL)


def finished(folder: Path) -> dict[str, int]:
    files = folder.glob("runs/*/*/results.json")
    return {str(file.relative_to(folder)): file.stat().st_mtime_ns for file in files}


@pytest.mark.slow
def test_the_last_line_is_the_path_of_the_page_and_the_exit_code_is_0(
    folder: Path, call: Call, first: Completed
) -> None:
    assert (first.returncode, first.stderr.count("Traceback")) == (0, 0), first.stderr
    (stacks,) = re.findall(r"training 8 runs in (\d) stacks", first.stderr)
    assert f"[{stacks}/{stacks}]" in first.stderr
    lines = first.stdout.splitlines()
    assert lines[0] == (
        "positions-fixed-or-learned: Does the learned table of positions beat the sinusoid?"
    )
    assert lines[-1] == "reports/notebooks/index.html"
    page = (folder / lines[-1]).read_text(encoding="utf-8")
    assert page.count('<article class="row"') == 5
    assert 'href="positions-fixed-or-learned-quick/index.html"' in page
    assert (folder / "reports/notebooks/positions-fixed-or-learned-quick/index.html").is_file()
    assert "8 of 8 runs done, 2 seeds" in page
    assert "No answer: not run yet." in page


@pytest.mark.slow
def test_a_second_call_trains_nothing(folder: Path, call: Call, first: Completed) -> None:
    before = finished(folder)
    assert len(before) == 8
    again = call(*SMALL)
    assert "training" not in again.stderr
    assert finished(folder) == before


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("--data-file", "nowhere.tsv", "--data-file 'nowhere.tsv' does not exist"),
        ("--only", "heads-split-or-independant", "did you mean 'heads-split-or-independent'?"),
    ],
)
def test_bad_input_is_one_line(call: Call, option: str, value: str, problem: str) -> None:
    assert problem in error_line(call(option, value))


@pytest.mark.slow
def test_a_failed_run_gives_exit_code_1_and_h2h_run_retries_it(
    folder: Path, call: Call, first: Completed, h2h_here: Call
) -> None:
    lost = sorted(finished(folder))[-1]
    (folder / lost).unlink()
    status = (folder / lost).with_name("status.json")
    content = json.loads(status.read_text(encoding="utf-8"))
    status.write_text(
        json.dumps(content | {"state": "FAILED", "signature": "ValueError: x", "files": {}})
    )
    failed = call(*SMALL)
    assert failed.returncode == 1
    assert "positions-fixed-or-learned: not complete: 7 DONE, 1 FAILED" in failed.stderr
    assert failed.stdout.splitlines()[-1] == "reports/notebooks/index.html"
    page = (folder / "reports/notebooks/index.html").read_text(encoding="utf-8")
    assert "7 of 8 runs done, 2 seeds" in page
    file = "reports/notebooks/experiments/positions-fixed-or-learned-quick.yaml"
    retried = h2h_here(
        folder, "run", file, "--retry", "--reports", "reports/notebooks", "--no-tracking"
    )
    assert retried.returncode == 0, retried.stderr
    assert call(*SMALL).returncode == 0
