"""The stored study of version 0.1.0 is read, reported, resumed and extended; its ledger and export are read.

The study is never made again to make a test pass: users have such folders. A source file of a component that has
changed since makes runs STALE, which ``planning/test_staleness.py`` tests. So tests that train set the
recorded hashes of the components to the present ones.
"""

import csv
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy

import headtohead as h2h
from headtohead import files
from headtohead.plugins.registry import load_registry
from headtohead_judge.ledger import Ledger
from made.study import Completed, Study

STORED = Path(__file__).parent / "study"
MAX_BYTES = 300_000
NAME = "stored"

pytestmark = pytest.mark.usefixtures("without_figures")


@pytest.fixture
def study(tmp_path: Path, cache: Path, h2h_here: Callable[..., Completed]) -> Study:
    """A copy of the stored study, as it is."""
    shutil.copytree(STORED, tmp_path, dirs_exist_ok=True)
    return Study(tmp_path, cache, h2h_here, name=NAME)


@pytest.fixture
def current(study: Study) -> Study:
    """The copy with the present hashes of the components, as if no source file of them had changed."""
    entries = load_registry().entries
    for path in study.experiment.glob("*/run.json"):
        record = files.read_json(path)
        for plugin in record["plugins"]:
            present = entries[plugin["family"]][plugin["name"]]
            plugin["source_sha256"] = present.source_sha256
        files.write_json(path, record)
        status = files.read_json(path.with_name("status.json"))
        status["files"]["run.json"] = hashlib.sha256(path.read_bytes()).hexdigest()
        files.write_json(path.with_name("status.json"), status)
    return study


def results(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "results.json").read_text(encoding="utf-8"))
    return content


def stored_runs() -> list[Path]:
    return sorted(path.parent for path in (STORED / "runs" / NAME).glob("*/run.json"))


def written_times(study: Study) -> dict[str, int]:
    """Return when the weights of each run were written."""
    paths = study.experiment.glob("*/checkpoint.safetensors")
    return {path.parent.name: path.stat().st_mtime_ns for path in paths}


def loss_differences() -> list[float]:
    """Return the difference in validation loss without positions, per seed, from the stored results."""
    losses = {}
    for run in stored_runs():
        variant, seed, _ = run.name.split("-")
        losses[variant, seed] = results(run)["metrics"]["valid/loss"]
    return [losses["none", seed] - losses["sinusoidal", seed] for seed in ("s1", "s2")]


def test_the_stored_study_is_small_and_names_no_machine() -> None:
    paths = [path for path in STORED.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in paths) <= MAX_BYTES
    assert len(stored_runs()) == 4
    for run in stored_runs():
        record = files.read_json(run / "run.json")
        assert record["versions"]["headtohead"] == "0.1.0"
        assert record["versions"]["platform"] == "Linux"
        assert files.read_json(run / "status.json")["host"] == "host"


def test_status_and_show_read_the_stored_runs(study: Study) -> None:
    status = json.loads(study.h2h("status", NAME, "--format", "json").stdout)
    assert [run["state"] for run in status["runs"]] == ["DONE"] * 4
    for run in stored_runs():
        shown = study.h2h("show", run.name).stdout
        loss = results(run)["metrics"]["valid/loss"]
        assert f"{loss:.3f}" in shown


def test_python_reads_the_stored_scores(study: Study) -> None:
    frame = h2h.results(study.experiment)
    assert sorted(frame["valid/loss"]) == pytest.approx(
        sorted(results(run)["metrics"]["valid/loss"] for run in stored_runs())
    )


def test_the_report_of_the_stored_runs_has_the_mean_difference_of_their_scores(
    study: Study,
) -> None:
    stored_answer = study.answer()
    shutil.rmtree(study.folder / "reports")
    study.h2h("report", f"runs/{NAME}")
    answer = study.answer()
    (contrast,) = (each for each in answer["contrasts"] if each["main"])
    assert contrast["difference"] == pytest.approx(mean(loss_differences()))
    assert contrast["seeds"] == [1, 2]
    assert "without positions" in study.page().lower()
    (stored,) = (each for each in stored_answer["contrasts"] if each["main"])
    assert contrast["interval"] == pytest.approx(stored["interval"])


def test_the_answer_keeps_every_field_of_the_stored_answer(study: Study) -> None:
    """Another format, which docs/reference/answer-file.md announces, may drop fields."""
    stored = study.answer()
    table = study.folder / "reports" / NAME / "results.csv"
    stored_columns = header(table)
    shutil.rmtree(study.folder / "reports")
    study.h2h("report", f"runs/{NAME}")
    answer = study.answer()
    assert answer["format"] == stored["format"]
    assert missing_fields(stored, answer) == []
    assert [name for name in stored_columns if name not in header(table)] == []


def header(table: Path) -> list[str]:
    with table.open(encoding="utf-8", newline="") as file:
        return next(csv.reader(file))


def missing_fields(stored: Any, answer: Any, path: str = "") -> list[str]:
    """Return the fields of a JSON value that another value lacks; of lists, the first items are compared."""
    if isinstance(stored, list) and stored and isinstance(answer, list) and answer:
        return missing_fields(stored[0], answer[0], f"{path}[]")
    if not isinstance(stored, dict) or not isinstance(answer, dict):
        return []
    missing = []
    for name, value in stored.items():
        if name not in answer:
            missing.append(f"{path}.{name}")
        else:
            missing += missing_fields(value, answer[name], f"{path}.{name}")
    return missing


def test_a_run_of_the_stored_file_trains_nothing(current: Study) -> None:
    before = written_times(current)
    done = current.run()
    assert "training" not in done.stderr
    assert written_times(current) == before
    assert {path.name for path in current.directories()} == {run.name for run in stored_runs()}


def test_a_missing_run_alone_is_trained_with_the_stored_hash_and_scores(current: Study) -> None:
    lost = "none-s2-a15e9591"
    before = written_times(current)
    shutil.rmtree(current.experiment / lost)
    done = current.run()
    assert "training 1 run in 1 stack" in done.stderr
    after = written_times(current)
    assert {name for name in after if after[name] != before[name]} == {lost}
    stored, trained = STORED / "runs" / NAME / lost, current.experiment / lost
    (hashes,) = {files.read_json(run / "run.json")["run_hash"] for run in (stored, trained)}
    assert hashes.startswith("a15e9591")
    # Weights are not compared: biases of keys have no gradient, and Adam amplifies the rounding of their zero.
    old, new = (load_file(run / "examples.safetensors") for run in (stored, trained))
    assert new["test/losses"].tolist() == pytest.approx(old["test/losses"].tolist(), rel=1e-3)
    old, new = (load_file(run / "checkpoint.safetensors") for run in (stored, trained))
    assert {name: tensor.shape for name, tensor in old.items()} == {
        name: tensor.shape for name, tensor in new.items()
    }


def test_one_more_seed_trains_only_the_new_runs(current: Study) -> None:
    before = written_times(current)
    text = current.file.read_text(encoding="utf-8")
    assert text.count("seeds: 2") == 1
    current.file.write_text(text.replace("seeds: 2", "seeds: 3"), encoding="utf-8")
    done = current.run()
    assert "training 2 runs in 1 stack" in done.stderr
    after = written_times(current)
    assert {name: after[name] for name in before} == before
    new = sorted(after.keys() - before.keys())
    assert [name.rpartition("-")[0] for name in new] == ["none-s3", "sinusoidal-s3"]
    (contrast,) = (each for each in current.answer()["contrasts"] if each["main"])
    assert contrast["seeds"] == [1, 2, 3]


def test_the_stored_ledger_is_read_and_continued(study: Study) -> None:
    path = study.folder / "ledger.jsonl"
    stored = path.read_bytes()
    status = json.loads(
        study.h2h("judge", "--ledger", str(path), "--status", "--format", "json").stdout
    )
    assert status["incumbent"] == "faster"
    assert [decision.kept for decision in Ledger.read(path).decisions] == [True, False]
    rows = []
    for index, noise in enumerate([0.01, -0.02, 0.03, 0.0, -0.01, 0.02]):
        seed = 13 + index
        rows.append(("faster", seed, 2.6 + noise))
        rows.append(("deeper", seed, 2.3 + noise + 0.001 * index))
    table = study.folder / "scores.csv"
    pd.DataFrame(rows, columns=["variant", "seed", "loss"]).to_csv(table, index=False)
    study.h2h("judge", str(table), "--baseline", "faster", "--ledger", str(path))
    assert path.read_bytes().startswith(stored)
    assert Ledger.read(path).incumbent == "deeper"


def test_the_exported_model_has_the_losses_and_translations_of_the_stored_run(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("H2H_CACHE", str(study.folder / "no-cache"))
    model = h2h.load(study.folder / "model")
    (run,) = (STORED / "runs" / NAME).glob("sinusoidal-s1-*")
    with (run / "translations.tsv").open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    losses = []
    for row in rows:
        source = torch.tensor([model.data.tokenise(row["source"], "source")])
        target = torch.tensor([model.data.tokenise(row["references"], "target")])
        logits = model.logits(source, target[:, :-1])[0]
        losses.append(cross_entropy(logits, target[0, 1:], reduction="sum").item())
    assert losses == pytest.approx(load_file(run / "examples.safetensors")["test/losses"].tolist())
    assert model.translate([row["source"] for row in rows]) == [row["hypothesis"] for row in rows]
