"""A failing member, stack or machine does not affect other runs."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mlflow import MlflowClient

from headtohead import files
from headtohead.cli.progress import LineWatcher
from headtohead.execution import scheduler
from headtohead.model import precision
from headtohead.planning import planner
from headtohead.plugin import LocalLauncher
from headtohead.storage import states
from headtohead.storage.frames import load_frames
from headtohead.storage.histories import read_metrics
from headtohead.storage.leases import Lease
from headtohead.storage.progress import read_progress
from headtohead.storage.run_directory import leased
from headtohead.storage.stack import stack_folders
from headtohead.tracking.rundirs import TrackedRun, TrackedStudy
from headtohead.tracking.shipping import ship

if TYPE_CHECKING:
    from .conftest import Study

Check = Callable[["Study", "Study"], None]
Command = Callable[..., Any]

# MLflow's own use of its libraries, as in tests/tracking/conftest.py.
MLFLOWS_OWN = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")

LISTENER = """
import headtohead as h2h

@h2h.plugin.hookimpl
def on_evaluation(run, step, metrics):
    if run.name.split("-")[-2] == "s1" and step == 40:
        raise ValueError("no more of this")
"""

POISON = """
import multiprocessing

import headtohead as h2h

class Poison(h2h.plugin.Positional):
    '''One member of a worker's stack has numbers that are none.'''

    def build(self):
        self.table = self.parameter(64, self.context.d_model)

    def embed(self, positions, role):
        rows = self.table[:, positions].clone()
        if role == "decoder" and len(rows) == 2 and multiprocessing.parent_process() is not None:
            rows[0] = float("nan")
        return rows

@h2h.plugin.hookimpl
def register_positionals():
    return {"poison": Poison}
"""

GREEDY = """
import multiprocessing

import headtohead as h2h
import torch

class Greedy(h2h.plugin.Positional):
    '''Runs out of memory where a batch has many rows.'''

    def rotate(self, x, positions, role):
        if self.training and x.shape[1] > 6 and multiprocessing.parent_process() is not None:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return x

@h2h.plugin.hookimpl
def register_positionals():
    return {"greedy": Greedy}
"""

BROKEN = """
import multiprocessing

import headtohead as h2h

class Broken(h2h.plugin.Positional):
    '''Fails whenever a worker trains it.'''

    def rotate(self, x, positions, role):
        if x.requires_grad and multiprocessing.parent_process() is not None:
            raise RuntimeError("the same fault")
        return x

@h2h.plugin.hookimpl
def register_positionals():
    return {"broken": Broken}
"""


def plugin(study: Study, text: str) -> tuple[str, str]:
    path = study.folder / "mine.py"
    path.write_text(text)
    return "--plugin", str(path)


def test_a_member_that_raises_is_removed_and_does_not_change_the_other_member(study: Study, undisturbed: Study) -> None:
    done = study.run(*plugin(study, LISTENER), code=1)
    raised, neighbour = study.directories()
    status = files.read_json(raised / "status.json")
    assert status["state"] == "FAILED"
    assert status["reason"] == "ValueError: no more of this (mine.py:7)"
    assert "not complete: 1 DONE, 1 FAILED" in done.stdout
    assert study.scores()[neighbour.name] == undisturbed.scores()[neighbour.name]
    for name, value in study.weights()[neighbour.name].items():
        assert bool((value == undisturbed.weights()[neighbour.name][name]).all())


def test_a_failed_run_is_restarted_only_with_retry(study: Study, undisturbed: Study, same_results: Check) -> None:
    study.run(*plugin(study, LISTENER), code=1)
    again = study.run(code=1)
    assert "training" not in again.stderr
    study.run("--retry")
    same_results(study, undisturbed)


CHANGED = """
import headtohead as h2h

class Table(h2h.plugin.Positional):
    '''A table whose start differs between the two versions of this file.'''

    def build(self):
        self.table = self.parameter(64, self.context.d_model, std=STD)

    def embed(self, positions, role):
        return self.table[:, positions]

@h2h.plugin.hookimpl
def on_evaluation(run, step, metrics):
    if step == FAIL_AT:
        raise ValueError("no more of this")

@h2h.plugin.hookimpl
def register_positionals():
    return {"table": Table}
"""
FAULTY = CHANGED.replace("STD", "3.0").replace("FAIL_AT", "40")
FAULTY_EARLIER = CHANGED.replace("STD", "3.0").replace("FAIL_AT", "20")
CORRECTED = CHANGED.replace("STD", "0.02").replace("FAIL_AT", "-1")


@dataclass(frozen=True)
class Retried:
    """A run that failed at step 40, then at step 20, and then was retrained with a corrected plugin.

    MLflow received the first and the last attempt.
    """

    experiment: Path
    uri: str
    failed: str
    """The file metrics.jsonl of the first attempt."""
    second_curve: list[int]
    """The steps of the validation loss in the frames after the second attempt."""
    expected: dict[int, float]
    """The validation loss of each step, of the corrected plugin in a separate folder."""

    @property
    def run(self) -> TrackedRun:
        return TrackedStudy.read(self.experiment).runs()[0]


@pytest.fixture(scope="module")
def retried(
    tmp_path_factory: pytest.TempPathFactory, cache: Path, h2h_here: Command, store_template: Path, no_figures: Command
) -> Retried:
    from .conftest import Study

    def made(name: str) -> Study:
        found = Study(tmp_path_factory.mktemp(name), cache, h2h_here)
        found.write(baseline={"positional": "table"}, seeds=1)
        return found

    study, reference = made("retried"), made("reference")
    shutil.copyfile(store_template, study.folder / "mlflow.db")
    uri = f"sqlite:///{study.folder}/mlflow.db"
    with no_figures():
        reference.run(*plugin(reference, CORRECTED))
        study.run(*plugin(study, FAULTY), code=1)
        failed = (study.directories()[0] / "metrics.jsonl").read_text()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # MLflow's own use of its libraries
            assert ship(study.experiment, uri).failures == []
            study.run(*plugin(study, FAULTY_EARLIER), "--retry", code=1)
            histories = load_frames(study.experiment).histories
            study.run(*plugin(study, CORRECTED), "--retry")
            assert ship(study.experiment, uri).failures == []
    expected = dict(losses(reference.directories()[0] / "metrics.jsonl"))
    assert len(expected) == 3
    second_curve = histories.loc[histories["metric"] == "valid/loss", "step"].tolist()
    return Retried(study.experiment, uri, failed, second_curve, expected)


def losses(path: Path) -> list[tuple[int, float]]:
    """Return the step and the validation loss of each line that has one."""
    lines = map(json.loads, path.read_text().splitlines())
    return [(line["step"], line["values"]["valid/loss"]) for line in lines if "valid/loss" in line["values"]]


def test_a_retried_run_begins_a_new_file_of_metrics(retried: Retried) -> None:
    assert losses(retried.run.path / "metrics.jsonl") == list(retried.expected.items())


def test_the_metrics_of_a_failed_attempt_are_kept(retried: Retried) -> None:
    assert retried.failed
    assert (retried.run.path / "attempts" / "1.metrics.jsonl").read_text() == retried.failed


def test_curves_have_no_step_of_an_earlier_attempt(retried: Retried) -> None:
    assert retried.second_curve == [20]


@MLFLOWS_OWN
def test_mlflow_displays_the_values_of_the_new_attempt(retried: Retried) -> None:
    """Of equal steps MLflow displays the latest point."""
    client = MlflowClient(retried.uri)
    (run,) = client.search_runs([client.get_experiment_by_name("tiny").experiment_id])
    points = client.get_metric_history(run.info.run_id, "valid/loss")
    displayed = {point.step: point.value for point in sorted(points, key=lambda point: point.timestamp)}
    assert displayed == retried.expected


def test_a_diverged_member_has_a_result_and_the_other_member_continues(study: Study) -> None:
    study.write(base={"model": {"dropout": 0.0}}, baseline={"positional": "poison"})
    study.run(*plugin(study, POISON))
    diverged, neighbour = study.directories()
    status = files.read_json(diverged / "status.json")
    assert status["state"] == "DIVERGED"
    assert status["reason"] == "the loss is not finite at step 20"
    assert files.read_json(neighbour / "status.json")["state"] == "DONE"
    assert all(bool(value.isfinite().all()) for value in study.weights()[neighbour.name].values())


CROWDED = """
import multiprocessing

import headtohead as h2h

class Crowded(h2h.plugin.Positional):
    '''Runs out of memory in the middle of a training, unless a run is alone.'''

    calls = 0

    def rotate(self, x, positions, role):
        Crowded.calls += self.training and multiprocessing.parent_process() is not None
        if CONDITION:
            raise RuntimeError("CUDA error: out of memory")
        return x

@h2h.plugin.hookimpl
def register_positionals():
    return {"crowded": Crowded}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "condition",
    [
        pytest.param("self.training and len(x) > 1 and Crowded.calls > 60", id="a step"),
        pytest.param("not self.training and len(x) > 1 and Crowded.calls > 60", id="an evaluation"),
    ],
)
def test_out_of_memory_halves_the_stack_and_each_half_continues(study: Study, condition: str) -> None:
    study.write(
        base={"train": {"precision": "float64", "checkpoint_seconds": 0}},
        baseline={"positional": "crowded"},
        design=[{"one_at_a_time": {"train.lr": [0.01]}}],
    )
    done = study.run(*plugin(study, CROWDED.replace("CONDITION", condition)))
    assert "training 4 runs in 1 stack" in done.stderr
    assert "out of memory; its 4 runs continue in two stacks" in done.stderr
    assert done.stderr.count("out of memory; its 2 runs continue in two stacks") == 2
    assert len(stack_folders(study.experiment)) == 4
    halved = study.scores()
    for path in study.directories():
        reasons = [files.read_json(attempt)["reason"] for attempt in sorted(path.glob("attempts/*.json"))]
        assert reasons == ["out of memory in a stack of 4", "out of memory in a stack of 2"]
        steps = [line.step for line in read_metrics(path / "metrics.jsonl") if line and "train/loss" in line.values]
        assert steps == [20, 40, 60], "a half began anew"
    study.run(*plugin(study, CROWDED.replace("CONDITION", "False")), "--fresh")
    assert study.scores().keys() == halved.keys()
    for name, scores in study.scores().items():
        assert halved[name] == pytest.approx(scores, rel=1e-9, abs=1e-9), name


ALLOCATING = """
import multiprocessing
import resource
from pathlib import Path

import headtohead as h2h

class Hungry(h2h.plugin.Positional):
    '''Leaves a worker little of its address space at its first step.'''

    taken = False

    def rotate(self, x, positions, role):
        if not Hungry.taken and multiprocessing.parent_process() is not None and self.training:
            Hungry.taken = True
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + 400 * 2**20,) * 2)
        return x

@h2h.plugin.hookimpl
def register_positionals():
    return {"hungry": Hungry}
"""


FAULTY_DEVICE = """
import multiprocessing
from pathlib import Path

import headtohead as h2h

FAILED = Path(__file__).with_suffix(".failed")

class Faulty(h2h.plugin.Positional):
    calls = 0

    def rotate(self, x, positions, role):
        Faulty.calls += self.training and multiprocessing.parent_process() is not None
        if Faulty.calls > 100 and not FAILED.exists():
            FAILED.touch()
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return x

@h2h.plugin.hookimpl
def register_positionals():
    return {"faulty": Faulty}
"""


def test_after_an_error_of_the_gpu_a_new_process_continues_from_the_resume_point(study: Study) -> None:
    study.write(base={"train": {"steps": 60, "checkpoint_seconds": 0}}, baseline={"positional": "faulty"}, seeds=2)
    study.run(*plugin(study, FAULTY_DEVICE))
    assert list(study.folder.glob("*.failed"))
    assert set(study.states().values()) == {"DONE"}
    (folder,) = stack_folders(study.experiment)
    assert folder.record.deaths == 1
    assert "CUDA error: an illegal memory access" in (folder.path / "worker.log").read_text()
    lines = (study.directories()[0] / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [20, 40, 60, 60], "no step is trained twice"


STACKED = """
from headtohead.planning import stacking

stacking.MAX_CPU_NUMBERS = 10**12
"""
"""Stacks all runs, although large models train no faster in a stack."""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS is Linux's")
def test_a_real_out_of_memory_error_halves_the_stack(study: Study) -> None:
    # The inner activations of a run are 64 MB and exist several times: eight runs need more than 1 GB, one run fits.
    study.write(
        base={
            "model": {"dropout": 0.0, "d_ff": 16000},
            "train": {"steps": 4, "batch_tokens": 1000, "evaluate_every": 4},
            "evaluate": {"decode": "none"},
        },
        baseline={"positional": "hungry"},
        metrics={"primary": "test/loss", "report": []},
        seeds=8,
    )
    done = study.run(*plugin(study, ALLOCATING + STACKED))
    assert "out of memory; its 8 runs continue in two stacks" in done.stderr
    assert set(study.states().values()) == {"DONE"}
    sizes = {len(folder.record.members) for folder in stack_folders(study.experiment)}
    assert sizes <= {1, 2, 4}


@pytest.mark.slow
def test_out_of_memory_halves_the_microbatches_and_keeps_the_batch_size(study: Study) -> None:
    study.write(base={"model": {"dropout": 0.0}}, baseline={"positional": "greedy"}, seeds=1)
    done = study.run(*plugin(study, GREEDY))
    assert "out of memory; retrying with 2 micro-batches" in done.stderr
    plain = GREEDY.replace("if self.training", "if False")
    small = study.scores()
    study.run(*plugin(study, plain), "--fresh")
    for name, scores in study.scores().items():
        assert scores["valid/loss"] == pytest.approx(small[name]["valid/loss"], rel=1e-3)


@pytest.mark.slow
def test_three_stacks_with_the_same_error_stop_the_experiment(study: Study) -> None:
    study.write(
        base={"model": {"layers": 1}},
        baseline={"positional": "broken"},
        design=[{"product": {"model.d_ff": [8, 12, 16, 20, 24, 28]}}],
    )
    done = study.run(*plugin(study, BROKEN), "--workers", "1", code=1)
    assert "stopped after 3 stacks failed in the same way: RuntimeError: the same fault" in done.stdout
    states = sorted(study.states().values())
    assert states.count("FAILED") == 6
    assert states.count("PLANNED") == 6


@pytest.mark.slow
def test_six_failures_in_a_stack_do_not_stop_the_other_stacks(study: Study) -> None:
    healthy = {"baseline": {"positional": "sinusoidal"}, "base": {"model": {"d_ff": 16}}}
    study.write(**healthy, seeds=4)
    study.run()
    study.write(**healthy, seeds=6, design=[{"zip": {"positional": ["sinusoidal", "broken"], "model.d_ff": [16, 24]}}])
    done = study.run(*plugin(study, BROKEN), "--workers", "2", code=1)  # The six failing runs end first.
    assert "training 8 runs in 2 stacks" in done.stderr
    assert "stopped after" not in done.stdout
    assert sorted(study.states().values()) == ["DONE"] * 6 + ["FAILED"] * 6


@pytest.mark.slow
def test_a_failed_run_in_a_stack_of_another_process_is_counted_once(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    study.write(base={"train": {"steps": 1_000_000}})
    study.run("--timeout", "0.5", code=1)
    failed, waiting = study.directories()
    for run, state in ((failed, "FAILED"), (waiting, "PLANNED")):
        with leased(run) as writer:
            writer.set_state(state, reason="the same fault", signature="the same fault")
    polls: list[float] = []
    real_sleep = time.sleep

    def sleep(seconds: float) -> None:
        if seconds != scheduler.BUSY_SECONDS:  # another thread, or another wait
            real_sleep(seconds)
            return
        polls.append(seconds)
        if len(polls) == 8:
            lease.release()

    monkeypatch.setattr(scheduler.time, "sleep", sleep)
    lease = Lease(waiting)
    lease.acquire()
    done = study.run("--timeout", "0.5", code=1)
    assert polls == [scheduler.BUSY_SECONDS] * 8
    assert "stopped after" not in done.stdout
    assert done.stderr.count("waiting for another process that trains it") == 1
    assert study.states() == {failed.name: "FAILED", waiting.name: "TIMEOUT"}


@pytest.mark.parametrize("option", ["--fresh", "--retry"])
def test_runs_that_another_process_trains_are_neither_archived_nor_reset(finished: Study, option: str) -> None:
    study = finished
    run = study.directories()[-1]
    with leased(run) as writer:
        if option == "--retry":
            writer.set_state("FAILED")
        done = study.run(option, code=2)
        assert re.fullmatch(
            rf"h2h: run '{run.name}' is in use by process \d+ on \S+; wait for that process or end it, then "
            r"run the same command\n",
            done.stderr,
        )
        assert not (study.experiment / ".archived").exists()
    assert writer.state == ("DONE" if option == "--fresh" else "FAILED")


@pytest.mark.slow
def test_stacks_split_by_another_process_are_replaced_by_their_parts(study: Study) -> None:
    study.run("--timeout", "0.000001", code=1)
    (folder,) = stack_folders(study.experiment)
    execution = scheduler._Execution(scheduler.Machine(LocalLauncher()), LineWatcher(), study.experiment)
    assert execution._current([folder]) == [folder]
    other = scheduler._Execution(scheduler.Machine(LocalLauncher()), LineWatcher(), study.experiment)
    record = folder.record
    other._split(folder, [replace(record, members=[member]) for member in record.members])
    assert len(other.next_round) == 2
    assert {stack.path for stack in execution._current([folder])} == {stack.path for stack in other.next_round}


@pytest.mark.slow
def test_a_stack_that_another_process_trains_is_not_split(study: Study) -> None:
    study.run("--timeout", "0.000001", code=1)
    (folder,) = stack_folders(study.experiment)
    execution = scheduler._Execution(scheduler.Machine(LocalLauncher()), LineWatcher(), study.experiment)
    with leased(study.directories()[1]):
        execution._split(folder, [replace(folder.record, variant="half")])
        execution._end_runs(folder, "FAILED", "a fault")
    assert folder.exists
    assert execution.next_round == [folder]
    assert [run.state for run in folder.runs()] == ["TIMEOUT", "TIMEOUT"]


def test_a_stack_over_its_time_limit_has_state_timeout_and_a_resume_point(study: Study) -> None:
    study.write(base={"train": {"steps": 1_000_000}})
    study.run("--timeout", "1.5", code=1)
    assert set(study.states().values()) == {"TIMEOUT"}
    assert any(study.experiment.glob(".stacks/*/resume-*.safetensors"))


@pytest.mark.slow
def test_added_seeds_train_only_the_missing_runs(finished: Study) -> None:
    study = finished
    before = {path: (path / "checkpoint.safetensors").stat().st_mtime_ns for path in study.directories()}
    study.write(seeds=3)
    done = study.run()
    assert "training 1 run in 1 stack" in done.stderr
    assert len(study.directories()) == 3
    for path, moment in before.items():
        assert (path / "checkpoint.safetensors").stat().st_mtime_ns == moment


@pytest.mark.slow
def test_fresh_archives_earlier_runs_and_deletes_none(finished: Study) -> None:
    study = finished
    names = [path.name for path in study.directories()]
    study.run("--fresh")
    assert [path.name for path in study.directories()] == names
    archived = [path.parent.name for path in study.experiment.glob(".archived/*/*/results.json")]
    assert sorted(archived) == names


@pytest.mark.slow
def test_the_null_pair_is_trained_once_and_reported_as_equal(study: Study) -> None:
    study.write(design=[{"product": {"masking.decoder": ["padding-causal", "causal"]}}])
    done = study.run()
    assert "training 2 runs in 1 stack" in done.stderr
    planner = files.read_json(study.experiment / "experiment.json")
    equal = [variant["equal_to"] for variant in planner["variants"]]
    assert sorted(equal, key=str) == sorted([None, planner["baseline"]], key=str)
    assert "by construction" in (study.folder / "reports/tiny/report.md").read_text()


def test_a_run_of_another_experiment_with_the_same_hash_is_reused(finished: Study) -> None:
    study = finished
    other = study.folder / "other.yaml"
    other.write_text(study.file.read_text())
    done = study.run(file=other)
    assert "training" not in done.stderr
    planner = files.read_json(study.runs / "other" / "experiment.json")
    assert all(run["reused_from"].startswith("tiny/") for run in planner["runs"])
    assert "2 runs are reused from other experiments" in done.stdout


@pytest.mark.slow
def test_a_launcher_warms_up_before_costs_are_counted_and_only_for_a_valid_file(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []

    def planned(*arguments: Any, make: Callable[..., Any] = planner._planned) -> Any:
        called.append("count")
        return make(*arguments)

    monkeypatch.setattr(LocalLauncher, "warm", lambda self: called.append("warm"))
    monkeypatch.setattr(planner, "_planned", planned)
    study.run()
    assert called == ["warm", "count"]
    study.file.write_text(study.file.read_text().replace("sinusoidal", "sinusoidel"))
    study.run(code=2)
    assert called == ["warm", "count"]


def test_bfloat16_is_refused_on_a_processor_that_emulates_it(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "bfloat16_speed", lambda: 0.02)
    study.write(base={"train": {"precision": "bfloat16"}})
    done = study.run("--device", "cpu", code=2)
    assert done.stderr == (
        "h2h: baseline: train.precision 'bfloat16' is slower here: float32 products are 50.0 times as fast as "
        "bfloat16 products on this processor; use --set train.precision=float32\n"
    )
    assert not study.experiment.exists()


def test_tf32_is_refused_without_cuda(study: Study) -> None:
    study.write(base={"train": {"precision": "tf32"}})
    done = study.run("--device", "cpu", code=2)
    assert done.stderr == (
        "h2h: baseline: train.precision 'tf32' requires a CUDA device; use --set train.precision=float32\n"
    )


@pytest.mark.slow
def test_bfloat16_trains_on_a_processor_that_supports_it(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "bfloat16_speed", lambda: 4.0)
    study.write(base={"train": {"precision": "bfloat16"}})
    study.run("--device", "cpu")
    assert {run.state for run in read_progress(study.experiment).runs} == {states.DONE}


def test_a_missing_gpu_is_one_line(study: Study) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    done = study.run("--device", "cuda", code=2)
    assert done.stderr == "h2h: device 'cuda' is not available here; use --device cpu\n"


@pytest.mark.slow
@pytest.mark.usefixtures("without_figures")
def test_the_answer_of_the_report_is_printed_before_its_path(study: Study) -> None:
    design = [{"product": {"positional": ["sinusoidal", "none"], "masking": ["padding-causal", "causal"]}}]
    study.write(baseline={"positional": "sinusoidal", "masking": "padding-causal"}, design=design, seeds=2)
    lines = study.run().stdout.splitlines()
    report = next(index for index, line in enumerate(lines) if line.startswith("report: "))
    answer = json.loads((study.folder / "reports" / "tiny" / "answer.json").read_text())
    cautions = [remark["text"] for remark in answer["remarks"] if remark["severity"] != "note"]
    assert lines[report - 1 - len(cautions) : report] == [answer["answer"], *cautions]
    assert "sinusoidal" in answer["answer"]


@pytest.mark.slow
def test_a_loss_worse_than_a_uniform_guess_at_the_end_is_a_divergence(study: Study) -> None:
    study.write(base={"train": {"steps": 120, "batch_tokens": 128, "lr": 50.0}}, seeds=1)
    study.run()
    (run,) = study.directories()
    status = files.read_json(run / "status.json")
    assert status["state"] == "DIVERGED"
    assert re.fullmatch(
        r"the validation loss, [\d,.]+, is worse than that of a uniform guess, [\d.]+; lower train.lr", status["reason"]
    )
    study.write(base={"train": {"steps": 20, "batch_tokens": 128, "lr": 50.0}}, seeds=1)
    study.run("--name", "short")
    (status_file,) = study.runs.glob("tiny-short/*-s1-*/status.json")
    assert files.read_json(status_file)["state"] == "DONE"
