"""``init_from`` starts training from the weights of a finished run."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save, save_file

from headtohead.storage.stack import stack_folders
from headtohead.tracking.run_page import parameters
from headtohead.tracking.runs import TrackedStudy

KILL = """
import os
from headtohead.plugin import hookimpl

@hookimpl
def on_evaluation(run, step):
    marker = run.parent.parent / "killed"
    if step == 4 and not marker.exists():
        marker.touch()
        os._exit(9)
"""


class Warm:
    """An experiment that starts from a run of the finished study."""

    def __init__(self, study: Any) -> None:
        self.study = study
        self.source = study.directories()[0]
        self.file = study.folder / "warm.yaml"
        self.experiment = study.runs / "warm"
        self.write()

    def write(self, init_from: Any = "", train: dict[str, Any] | None = None, **changes: Any) -> None:
        content = yaml.safe_load(self.study.file.read_text())
        length = {} if "epochs" in (train or {}) else {"steps": 4, "evaluate_every": 2}
        content["base"]["train"] = {"batch_tokens": 128, "lr": 0.005} | length | (train or {})
        base = content["base"] | {"init_from": f"tiny/{self.source.name}" if init_from == "" else init_from}
        self.file.write_text(yaml.safe_dump(content | {"base": base} | changes, sort_keys=False))

    def run(self, *arguments: str, code: int = 0) -> str:
        done = self.study.run(*arguments, file=self.file, code=code)
        return str(done.stdout + done.stderr)

    def h2h(self, *arguments: str) -> Any:
        return self.study.here(self.study.folder, *arguments, H2H_CACHE=str(self.study.cache))

    def refused(self) -> str:
        done = self.h2h("plan", str(self.file))
        assert done.returncode == 2, done.stdout
        assert done.stderr.count("\n") == 1, done.stderr
        return str(done.stderr).replace(str(self.study.folder), "")

    def runs(self) -> list[Path]:
        return sorted(path.parent for path in self.experiment.glob("*/run.json"))

    def metrics(self, run: Path) -> dict[str, float]:
        return json.loads((run / "results.json").read_text())["metrics"]  # type: ignore[no-any-return]

    def record(self, run: Path) -> Any:
        return json.loads((run / "run.json").read_text())


@pytest.fixture
def warm(finished: Any) -> Warm:
    return Warm(finished)


def test_without_a_step_the_scores_are_those_of_the_run(warm: Warm) -> None:
    warm.write(train={"epochs": 0})
    warm.run()
    expected = {
        name: value for name, value in warm.metrics(warm.source).items() if name.startswith(("valid/", "test/"))
    }
    assert len(expected) > 5
    for run in warm.runs():
        assert {name: warm.metrics(run)[name] for name in expected} == expected


def test_records_show_and_report_name_the_run_and_the_hash_of_its_weights(warm: Warm) -> None:
    warm.run()
    sha256 = json.loads((warm.source / "status.json").read_text())["files"]["checkpoint.safetensors"]
    expected = {"run": f"tiny/{warm.source.name}", "weights": sha256}
    assert [warm.record(run)["config"]["init_from"] for run in warm.runs()] == [expected, expected]
    assert "init_from" not in warm.record(warm.source)["config"]
    tracked = TrackedStudy.read(warm.experiment).runs()[0]
    logged = parameters(tracked, tracked.record)
    assert (logged["init_from.run"], logged["init_from.weights"]) == (expected["run"], sha256)
    assert warm.h2h("export", warm.runs()[0].name, "model").returncode == 0
    assert f"those of run {expected['run']}" in (warm.study.folder / "model" / "README.md").read_text()
    assert f"init_from:\n    run: {expected['run']}" in warm.h2h("show", warm.runs()[0].name).stdout
    report = (warm.study.folder / "reports" / "warm" / "report.md").read_text()
    assert f"initial weights from run {expected['run']}" in report
    assert sha256 in report


@pytest.mark.slow
def test_a_killed_training_resumes_bit_for_bit_and_is_reproducible(warm: Warm, h2h_here: Any) -> None:
    (warm.study.folder / "kill.py").write_text(KILL)
    warm.write(train={"steps": 6, "checkpoint_seconds": 0})
    warm.run()
    undisturbed = {run.name: load_file(run / "checkpoint.safetensors") for run in warm.runs()}
    shutil.rmtree(warm.experiment)
    warm.run("--plugin", "kill.py")
    assert (warm.study.runs / "killed").exists()
    for run in warm.runs():
        weights = load_file(run / "checkpoint.safetensors")
        assert all(bool((weights[name] == value).all()) for name, value in undisturbed[run.name].items())
    done = warm.h2h("reproduce", warm.runs()[0].name)
    assert "bit-for-bit equal" in done.stdout, done.stderr


def test_the_worker_refuses_a_changed_copy_of_the_weights(warm: Warm) -> None:
    warm.run()
    (stack,) = stack_folders(warm.experiment)
    weights = load_file(stack.initial_weights)
    first = next(iter(weights))
    save_file(weights | {first: weights[first] + 1}, stack.initial_weights)
    done = warm.h2h("reproduce", warm.runs()[0].name)
    assert done.returncode == 2
    assert "has changed: its sha256 is not that of the plan; delete the folder" in done.stderr


def test_random_and_loaded_weights_are_an_axis(warm: Warm) -> None:
    name = f"tiny/{warm.source.name}"
    warm.write(init_from=None, design=[{"one_at_a_time": {"init_from": [name]}}])
    warm.run()
    cold, loaded = (
        [run for run in warm.runs() if run.name.startswith(text)] for text in ("init_from-none", "init_from-t")
    )
    assert len(cold) == len(loaded) == 2
    losses = [[warm.metrics(run)["valid/loss"] for run in runs] for runs in (cold, loaded)]
    assert max(losses[1]) < min(losses[0]) - 0.1
    assert len(stack_folders(warm.experiment)) == 2
    hashes = {warm.record(run)["run_hash"] for run in warm.runs()}
    assert len(hashes) == 4


def test_the_run_is_found_by_name_prefix_and_directory_with_equal_hashes(warm: Warm) -> None:
    warm.study.write(seeds=1)
    found = set()
    for name in (warm.source.name, warm.source.name[:-4], str(warm.source), f"tiny/{warm.source.name}"):
        warm.write(init_from=name)
        done = warm.h2h("plan", str(warm.file), "--format", "json")
        assert done.returncode == 0, done.stderr
        found.add(tuple(run["run_hash"] for run in json.loads(done.stdout)["runs"]))
    assert len(found) == 1
    warm.write(init_from=None)
    cold = json.loads(warm.h2h("plan", str(warm.file), "--format", "json").stdout)
    assert {run["run_hash"] for run in cold["runs"]}.isdisjoint(*found)


def test_a_trial_starts_from_the_weights(warm: Warm) -> None:
    warm.write(train={"lr": 1e-6})
    done = warm.h2h("run", str(warm.file), "--try", "--steps", "1")
    printed = float(done.stdout.split("valid/loss ")[1].split(",")[0])
    assert printed == pytest.approx(warm.metrics(warm.source)["valid/loss"], rel=1e-3)


def test_the_plan_states_what_seeds_and_data_have_in_common_with_the_run(warm: Warm) -> None:
    name, command = f"tiny/{warm.source.name}", ("plan", str(warm.file))
    first = warm.h2h(*command).stdout
    assert f"every seed starts from the weights of {name}; seeds change only the order of batches and dropout" in first
    assert "was trained on other data" not in first
    other = warm.h2h(*command, "--set", "data.source_boundaries=sos-eos")
    assert other.returncode == 0, other.stderr
    assert f"{name} was trained on other data, which may contain test sentences of this experiment" in other.stdout


@pytest.mark.slow
def test_tuning_runs_start_from_the_weights(warm: Warm) -> None:
    warm.write(tune={"train.lr": [0.001, 0.003]}, tune_seeds=1, seeds=1)
    warm.run("--no-report")
    runs = [path.parent for path in warm.study.runs.glob("warm*/*/run.json")]
    assert len(runs) == 3
    assert {warm.record(run)["config"]["init_from"]["run"] for run in runs} == {f"tiny/{warm.source.name}"}


def edit_status(warm: Warm) -> None:
    status = json.loads((warm.source / "status.json").read_text())
    (warm.source / "status.json").write_text(json.dumps(status | {"state": "FAILED", "files": {}}))


def change_checkpoint(warm: Warm) -> None:
    with (warm.source / "checkpoint.safetensors").open("ab") as file:
        file.write(b"0")


def test_an_unfinished_or_changed_run_is_refused(warm: Warm) -> None:
    change_checkpoint(warm)
    assert "checkpoint.safetensors' is damaged: its sha256 is not that in status.json" in warm.refused()
    edit_status(warm)
    assert f"base.init_from: run '{warm.source.name}' is FAILED, not DONE; finish it with h2h run" in warm.refused()


def changed(warm: Warm, **sections: Any) -> None:
    content = yaml.safe_load(warm.file.read_text())
    for section, fields in sections.items():
        content["base"][section] |= fields
    warm.file.write_text(yaml.safe_dump(content, sort_keys=False))


def test_other_vocabularies_sizes_and_plugins_are_refused(warm: Warm) -> None:
    name = f"run 'tiny/{warm.source.name}'"
    changed(warm, model={"d_model": 16})
    message = warm.refused()
    assert re.match(r"h2h: /warm\.yaml:\d+: base\.init_from: variant 'baseline' cannot", message)
    assert f"variant 'baseline' cannot start from {name}: 'source_embedding.weight' has shape" in message
    assert message.endswith("use the sizes and plugins of that run, or exclude the variant\n")
    warm.write(design=[{"one_at_a_time": {"positional": ["learned"]}}])
    message = warm.refused()
    assert f"variant 'learned' cannot start from {name}: 'positionals." in message
    assert "is missing there and has shape" in message
    warm.write()
    changed(warm, data={"size": 60})
    message = warm.refused()
    assert "base.init_from: the source vocabulary is not that of" in message
    assert re.search(r": token \d+ is '\w+' there and ('\w+'|missing) here; use the data of that run", message)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("nowhere", "base.init_from: no run 'nowhere' in"),
        ("a" * 300, "aaa…: File name too long"),
        (3, "base.init_from: expected the name or the directory of a run, got 3"),
        ({"run": "x"}, "base.init_from: expected the name or the directory of a run, got {'run': 'x'}"),
    ],
)
def test_a_value_that_names_no_run_is_refused(warm: Warm, value: Any, message: str) -> None:
    warm.write(init_from=value)
    assert message in warm.refused()


def test_a_run_of_the_same_experiment_and_two_names_of_a_run_are_refused(warm: Warm) -> None:
    names = [warm.source.name, f"tiny/{warm.source.name}"]
    warm.write(init_from=None, design=[{"one_at_a_time": {"init_from": names}}])
    assert f"init_from[1]: '{names[1]}' and '{names[0]}' are the same run; keep one of these names" in warm.refused()
    warm.write()
    warm.file = shutil.copy(warm.file, warm.study.file)
    assert f"'{names[1]}' is a run of this experiment; copy the file under another name" in warm.refused()
    done = warm.h2h("plan", str(warm.file), "--set", "init_from.run=x")
    assert "'init_from' has no fields of its own, got 'run'" in done.stderr


def plant(warm: Warm, content: bytes) -> None:
    """Replace the checkpoint of the run and its sha256."""
    (warm.source / "checkpoint.safetensors").write_bytes(content)
    status = json.loads((warm.source / "status.json").read_text())
    status["files"]["checkpoint.safetensors"] = hashlib.sha256(content).hexdigest()
    (warm.source / "status.json").write_text(json.dumps(status))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("text", "is no safetensors file"),
        ("int8", "'source_embedding.weight' has the type int8 there and float32 here; use another run"),
        ("nan", "has values that are not finite"),
    ],
)
def test_a_checkpoint_without_usable_weights_is_refused(warm: Warm, damage: str, message: str) -> None:
    tensors = load_file(warm.source / "checkpoint.safetensors")
    if damage == "int8":
        tensors |= {"source_embedding.weight": tensors["source_embedding.weight"].to(torch.int8)}
    if damage == "nan":
        tensors["source_embedding.weight"][0, 0] = float("nan")
    plant(warm, b"weights of another tool" if damage == "text" else save(tensors))
    assert message in warm.refused()


def test_a_linked_checkpoint_is_refused(warm: Warm) -> None:
    path = warm.source / "checkpoint.safetensors"
    path.rename(warm.study.folder / "elsewhere.safetensors")
    path.symlink_to(warm.study.folder / "elsewhere.safetensors")
    assert "checkpoint.safetensors' is a symbolic link, which is not allowed" in warm.refused()


def test_a_link_to_a_run_is_refused(warm: Warm) -> None:
    link = warm.study.runs / "tiny" / "linked-s9-00000000"
    link.symlink_to(warm.source)
    warm.write(init_from=f"tiny/{link.name}")
    assert "linked-s9-00000000' is a symbolic link, which is not allowed; replace it by its target" in warm.refused()
