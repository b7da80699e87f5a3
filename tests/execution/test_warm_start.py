"""``init_from`` starts training from the weights of a finished run."""

import hashlib
import json
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save, save_file

from headtohead import files
from headtohead.storage.stack import stack_folders
from headtohead.tracking.study import TrackedStudy
from headtohead_mlflow.run_page import parameters
from made import error_line
from made.study import TINY, Study, on_evaluation

KILL = on_evaluation(
    "import os\n"
    "marker = run.parent.parent / 'killed'\n"
    "if step == 4 and not marker.exists():\n"
    "    marker.touch()\n"
    "    os._exit(9)"
)


@dataclass(frozen=True)
class Warm(Study):
    """An experiment that starts from a run of the finished study ``tiny``."""

    name: str = "warm"
    source: Path = Path()

    def write(self, init_from: Any = "", *, base: Any = None, **changes: Any) -> None:
        start = {"init_from": f"tiny/{self.source.name}" if init_from == "" else init_from}
        super().write(base=start | (base or {}), **changes)

    def refused(self, *arguments: str) -> str:
        return error_line(self.h2h("plan", str(self.file), *arguments, code=2))


@pytest.fixture
def warm(finished: Study) -> Warm:
    content = TINY | {
        "base": TINY["base"] | {"train": TINY["base"]["train"] | {"steps": 4, "evaluate_every": 2}}
    }
    made = Warm(
        finished.folder, finished.cache, finished.here, content, source=finished.directories()[0]
    )
    made.write()
    return made


def test_without_a_step_the_scores_are_those_of_the_run(warm: Warm) -> None:
    warm.write(base={"train": {"epochs": 0, "steps": None, "evaluate_every": None}})
    warm.run()
    scores = files.read_json(warm.source / "results.json")["metrics"]
    expected = {
        name: value for name, value in scores.items() if name.startswith(("valid/", "test/"))
    }
    assert len(expected) > 5
    for found in warm.scores().values():
        assert {name: found[name] for name in expected} == expected


def test_records_and_report_name_the_run_and_the_hash_of_its_weights(warm: Warm) -> None:
    warm.run()
    sha256 = files.read_json(warm.source / "status.json")["files"]["checkpoint.safetensors"]
    expected = {"run": f"tiny/{warm.source.name}", "weights": sha256}
    records = [files.read_json(run / "run.json")["config"] for run in warm.directories()]
    assert [config["init_from"] for config in records] == [expected, expected]
    assert "init_from" not in files.read_json(warm.source / "run.json")["config"]
    tracked = TrackedStudy.read(warm.experiment).runs()[0]
    logged = parameters(tracked.record)
    assert (logged["init_from.run"], logged["init_from.weights"]) == (expected["run"], sha256)
    warm.h2h("export", warm.directories()[0].name, "model")
    assert expected["run"] in (warm.folder / "model" / "README.md").read_text()
    assert sha256 in warm.page()


@pytest.mark.slow
def test_a_killed_training_resumes_bit_for_bit_and_is_reproducible(warm: Warm) -> None:
    (warm.folder / "kill.py").write_text(KILL)
    warm.write(base={"train": {"steps": 6, "checkpoint_seconds": 0}})
    warm.run()
    undisturbed = warm.results()
    shutil.rmtree(warm.experiment)
    warm.run("--plugin", "kill.py")
    assert (warm.runs / "killed").exists()
    assert warm.results() == undisturbed
    assert "bit-for-bit equal" in warm.h2h("reproduce", warm.directories()[0].name).stdout


def test_the_worker_refuses_a_changed_copy_of_the_weights(warm: Warm) -> None:
    warm.run()
    (stack,) = stack_folders(warm.experiment)
    weights = load_file(stack.initial_weights)
    first = next(iter(weights))
    save_file(weights | {first: weights[first] + 1}, stack.initial_weights)
    done = warm.h2h("reproduce", warm.directories()[0].name, code=2)
    assert "has changed: its sha256 is not that of the plan; delete the folder" in done.stderr


def test_random_and_loaded_weights_are_an_axis(warm: Warm) -> None:
    name = f"tiny/{warm.source.name}"
    warm.write(init_from=None, design=[{"one_at_a_time": {"init_from": [name]}}])
    warm.run()
    cold, loaded = (
        [run for run in warm.directories() if run.name.startswith(text)]
        for text in ("init_from-none", "init_from-t")
    )
    assert len(cold) == len(loaded) == 2
    losses = [[warm.scores()[run.name]["valid/loss"] for run in runs] for runs in (cold, loaded)]
    assert max(losses[1]) < min(losses[0]) - 0.1
    assert len(stack_folders(warm.experiment)) == 2
    hashes = {files.read_json(run / "run.json")["run_hash"] for run in warm.directories()}
    assert len(hashes) == 4


def test_the_run_is_found_by_name_prefix_and_directory_with_equal_hashes(warm: Warm) -> None:
    found = set()
    for name in (
        warm.source.name,
        warm.source.name[:-4],
        str(warm.source),
        f"tiny/{warm.source.name}",
    ):
        warm.write(init_from=name)
        done = warm.h2h("plan", str(warm.file), "--format", "json")
        found.add(tuple(run["run_hash"] for run in json.loads(done.stdout)["runs"]))
    assert len(found) == 1
    warm.write(init_from=None)
    cold = json.loads(warm.h2h("plan", str(warm.file), "--format", "json").stdout)
    assert {run["run_hash"] for run in cold["runs"]}.isdisjoint(*found)


def test_other_vocabularies_sizes_and_plugins_are_refused(warm: Warm) -> None:
    warm.write(base={"model": {"d_model": 16}})
    message = warm.refused()
    assert re.search(
        r"/warm\.yaml:\d+: base\.init_from: variant 'baseline' cannot start from run", message
    )
    assert "'source_embedding.weight' is float [" in message
    warm.write(design=[{"one_at_a_time": {"positional": ["learned"]}}])
    assert "is missing there and float [" in warm.refused()
    warm.write(base={"data": {"size": 60}})
    refused = warm.refused()
    assert "base.init_from: the target vocabulary is not that of" in refused
    assert re.search(
        r": token \d+ is '\S+' there and '\S+' here; use the data of that run", refused
    )


def test_a_value_that_names_no_other_run_or_two_names_of_a_run_are_refused(warm: Warm) -> None:
    for value, message in (
        ("nowhere", "base.init_from: no run 'nowhere' in"),
        ("a" * 300, "aaa…: File name too long"),
        (3, "base.init_from: expected the name or the directory of a run, got 3"),
        (
            {"run": "x"},
            "base.init_from: expected the name or the directory of a run, got {'run': 'x'}",
        ),
    ):
        warm.write(init_from=value)
        assert message in warm.refused()
    names = [warm.source.name, f"tiny/{warm.source.name}"]
    warm.write(init_from=None, design=[{"one_at_a_time": {"init_from": names}}])
    same = f"'{names[1]}' and '{names[0]}' are the same run"
    assert f"design: {same}" in warm.refused()
    warm.write(
        init_from=None,
        design=[{"zip": {"init_from": [None, *names], "train.lr": [0.001, 0.002, 0.003]}}],
    )
    assert re.search(rf"warm\.yaml:\d+: design: {re.escape(same)}", warm.refused())
    own = replace(warm, name="tiny")
    own.write()
    assert f"'{names[1]}' is a run of this experiment" in own.refused()
    assert "--set init_from.run=x: expected the name" in warm.refused("--set", "init_from.run=x")


def test_a_run_without_usable_weights_is_refused(warm: Warm) -> None:
    checkpoint, status = warm.source / "checkpoint.safetensors", warm.source / "status.json"
    original, recorded = checkpoint.read_bytes(), files.read_json(status)
    tensors = load_file(checkpoint)
    name = "source_embedding.weight"
    for content, message in (
        (b"weights of another tool", "is no safetensors file"),
        (save(tensors | {name: tensors[name].to(torch.int8)}), f"'{name}' is int ["),
        (save(tensors | {name: tensors[name] * float("nan")}), "has values that are not finite"),
    ):
        checkpoint.write_bytes(content)
        assert "checkpoint.safetensors' is damaged" in warm.refused()
        hashes = recorded["files"] | {checkpoint.name: hashlib.sha256(content).hexdigest()}
        files.write_json(status, recorded | {"files": hashes})
        assert message in warm.refused()
        files.write_json(status, recorded)
    files.write_json(status, recorded | {"state": "FAILED", "files": {}})
    assert f"base.init_from: run '{warm.source.name}' is FAILED" in warm.refused()
    files.write_json(status, recorded)
    (warm.folder / "elsewhere").write_bytes(original)
    checkpoint.unlink()
    checkpoint.symlink_to(warm.folder / "elsewhere")
    assert "checkpoint.safetensors' is a symbolic link" in warm.refused()
    link = warm.source.parent / "linked-s9-00000000"
    link.symlink_to(warm.source)
    warm.write(init_from=f"tiny/{link.name}")
    assert "linked-s9-00000000' is a symbolic link" in warm.refused()
