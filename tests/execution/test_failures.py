"""A failing member, stack or machine does not affect other runs, and the command names the fault and how to resume."""

import json
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from headtohead import files
from headtohead.execution import scheduler
from headtohead.execution.progress import Watcher
from headtohead.execution.repair import find_damage, repair
from headtohead.execution.worker import work
from headtohead.plugin import LocalLauncher
from headtohead.plugins.launcher import WorkerPlugins
from headtohead.storage import exits
from headtohead.storage.frames import load_frames
from headtohead.storage.leases import Lease
from headtohead.storage.run_directory import RunDirectory, leased
from headtohead.storage.stack import stack_folders
from made import case_table, plugin_file
from made.study import Study, on_evaluation, own_positional, wait_for

FAILING_SEED = on_evaluation(
    'if "-s1-" in run.name and step == 40:\n    raise PermissionError(13, "no more")'
)
BROKEN = own_positional('if x.requires_grad:\n    raise RuntimeError("cannot divide\\n  by 0")')
OWN = {"positional": "own"}
SHORT = {"train": {"steps": 4}}


def test_a_member_that_raises_is_removed_and_does_not_change_the_other_member(
    study: Study, undisturbed: Study
) -> None:
    study.write(plugin=FAILING_SEED)
    done = study.run(code=1)
    raised, neighbour = study.directories()
    status = files.read_json(raised / "status.json")
    assert (status["state"], status["reason"]) == (
        "FAILED",
        "PermissionError: [Errno 13] no more (mine.py:6)",
    )
    assert "not complete: 1 DONE, 1 FAILED" in done.stdout
    assert study.results() == {neighbour.name: undisturbed.results()[neighbour.name]}
    study.write()
    assert "training" not in study.run(code=1).stderr
    study.run("--retry")
    assert study.results() == undisturbed.results()


KILLED_RETRY = """
import os, sys
from pathlib import Path

unlink = Path.unlink

def killed_after_run_json(path, **options):
    unlink(path, **options)
    if path.name == "run.json":
        os._exit(137)

Path.unlink = killed_after_run_json
from headtohead.cli.__main__ import entry
entry()
"""
"""The command, killed when --retry has removed the record of a run and none is written anew."""


@pytest.mark.slow
def test_a_killed_retry_leaves_a_planned_run_that_repair_does_not_count(
    study: Study, undisturbed: Study
) -> None:
    study.write(plugin=FAILING_SEED)
    study.run(code=1)
    failed = study.directories()[0]
    study.write()
    command = [
        sys.executable,
        "-c",
        KILLED_RETRY,
        "run",
        str(study.file),
        "--no-tracking",
        "--retry",
    ]
    killed = subprocess.run(
        command, cwd=study.folder, env=study.environment, capture_output=True, text=True
    )
    assert killed.returncode == 137, killed.stderr
    assert (files.read_json(failed / "status.json")["state"], (failed / "run.json").exists()) == (
        "PLANNED",
        False,
    )
    done = study.run("--repair")
    assert "none of 1 finished runs is damaged" in done.stdout
    assert "without a result" not in done.stdout
    assert not (study.experiment / ".archived").exists()
    assert study.results() == undisturbed.results()


def test_a_damaged_record_of_a_failed_run_is_no_damaged_result(finished: Study) -> None:
    failed = finished.directories()[0]
    with leased(failed) as writer:
        writer.set_state("FAILED", reason="a fault")
    (failed / "results.json").unlink()
    (failed / "run.json").write_text("{")
    lines: list[str] = []
    repair(find_damage(finished.experiment), lines.append)
    assert lines[0] == "none of 1 finished runs is damaged"
    assert lines[1].startswith(
        f"damaged records of 1 run without a result: {failed.name} (cannot read"
    )
    assert not failed.exists()


@pytest.mark.slow
def test_a_retried_run_has_the_metrics_of_its_last_attempt_alone(study: Study) -> None:
    """It fails at step 40, then at step 20, and is then retrained with corrected code."""
    histories, steps = [], []
    for fail_at in (40, 20, -1):
        fault = on_evaluation(f'if step == {fail_at}:\n    raise ValueError("no more of this")')
        study.write(plugin=fault, seeds=1)
        study.run(*(["--retry"] if histories else []), code=1 if fail_at > 0 else 0)
        (run,) = study.directories()
        histories.append((run / "metrics.jsonl").read_text())
        curve = load_frames(study.experiment).histories
        steps.append(curve.loc[curve["metric"] == "valid/loss", "step"].tolist())
    assert steps == [[20, 40], [20], [20, 40, 60]]
    for attempt in (1, 2):
        assert (run / "attempts" / f"{attempt}.metrics.jsonl").read_text() == histories[attempt - 1]


def test_a_diverged_member_has_a_result_and_the_other_member_continues(study: Study) -> None:
    plugin = own_positional(
        "if role == 'decoder' and len(x) == 2:\n    x = x * torch.tensor([float('nan'), 1]).reshape(2, 1, 1, 1, 1)"
    )
    base = {"model": {"dropout": 0.0}, "train": {"steps": 20}}
    study.write(plugin=plugin, base=base, baseline=OWN)
    study.run()
    diverged, neighbour = study.directories()
    status = files.read_json(diverged / "status.json")
    assert (status["state"], status["reason"]) == ("DIVERGED", "the loss is not finite at step 20")
    assert study.states()[neighbour.name] == "DONE"
    assert "NaN" not in json.dumps(study.results()[neighbour.name])


@pytest.mark.slow
def test_a_loss_worse_than_a_uniform_guess_at_the_end_is_a_divergence(study: Study) -> None:
    study.write(base={"train": {"steps": 120, "lr": 50.0}}, seeds=1)
    study.run()
    assert set(study.states().values()) == {"DIVERGED"}
    study.write(base={"train": {"steps": 20, "lr": 50.0}}, seeds=1)
    study.run("--fresh")
    assert set(study.states().values()) == {"DONE"}


@pytest.mark.slow
def test_out_of_memory_halves_the_stack_and_each_half_starts_again(study: Study) -> None:
    plugin = own_positional(
        'if not self.training and len(x) > 1 and Own.calls > 16:\n    raise RuntimeError("CUDA error: out of memory")'
    )
    changes = {
        "base": {
            "train": {
                "precision": "float64",
                "checkpoint_seconds": 0,
                "steps": 6,
                "evaluate_every": 2,
            },
            "evaluate": {"unpadded": False, "test_limit": 4},
        },
        "baseline": OWN,
        "design": [{"one_at_a_time": {"train.lr": [0.01]}}],
    }
    study.write(plugin=plugin, **changes)
    done = study.run()
    assert "training 4 runs in 1 stack" in done.stderr
    assert done.stderr.count("start again in two stacks") == 3
    assert len(stack_folders(study.experiment)) == 4
    halved = study.scores()
    for path in study.directories():
        reasons = [
            files.read_json(attempt)["reason"] for attempt in sorted(path.glob("attempts/*.json"))
        ]
        assert reasons == ["out of memory in a stack of 4", "out of memory in a stack of 2"]
        steps = [
            line.step
            for line in RunDirectory(path).history()
            if line and "train/loss" in line.values
        ]
        assert steps == [1, 2, 3, 4, 5, 6], "the history contains another attempt"
    study.write(plugin=own_positional("pass"), **changes)
    study.run("--fresh")
    assert study.scores().keys() == halved.keys()
    for name, scores in study.scores().items():
        assert halved[name] == pytest.approx(scores, rel=1e-9, abs=1e-9), name


@pytest.mark.slow
def test_out_of_memory_doubles_the_microbatches_and_keeps_the_batch_size(study: Study) -> None:
    plugin = own_positional(
        'if self.training and x.shape[1] > 6:\n    raise torch.OutOfMemoryError("CUDA out of memory")'
    )
    base = {"model": {"dropout": 0.0}, "train": {"steps": 6, "evaluate_every": 2}}
    study.write(plugin=plugin, base=base, baseline=OWN, seeds=1)
    assert "out of memory; retrying with 2 microbatches" in study.run().stderr
    small = study.scores()
    study.write(plugin=own_positional("pass"), base=base, baseline=OWN, seeds=1)
    study.run("--fresh")
    for name, scores in study.scores().items():
        assert scores["valid/loss"] == pytest.approx(small[name]["valid/loss"], rel=1e-3)


@pytest.mark.slow
def test_after_an_error_of_the_gpu_a_new_process_continues_from_the_resume_point(
    study: Study,
) -> None:
    plugin = own_positional(
        "if Own.calls > 100 and not FAILED.exists():\n"
        "    FAILED.touch()\n"
        "    raise RuntimeError('CUDA error: an illegal memory access was encountered')",
        imports="from pathlib import Path\nFAILED = Path(__file__).with_suffix('.failed')",
    )
    study.write(plugin=plugin, base={"train": {"checkpoint_seconds": 0}}, baseline=OWN)
    study.run()
    assert list(study.folder.glob("*.failed"))
    assert set(study.states().values()) == {"DONE"}
    (folder,) = stack_folders(study.experiment)
    assert folder.record.deaths == 1
    assert "CUDA error: an illegal memory access" in (folder.path / "worker.log").read_text()
    lines = (study.directories()[0] / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines]
    assert len(steps) == len({*steps}), "no step is trained twice"
    assert {20, 40, 60} <= {*steps}


def test_a_failed_stack_names_the_plugin_the_log_and_retry(study: Study) -> None:
    study.write(plugin=BROKEN, base=SHORT, baseline=OWN)
    messages = study.run(code=1).stdout.splitlines()
    found = re.fullmatch(
        r"2 FAILED: RuntimeError: cannot divide by 0 \(mine.py:\d+\); log with the traceback: (.*)",
        messages[-2],
    )
    assert found, messages
    assert "Traceback" in (study.folder / found[1]).read_text()
    assert messages[-1].startswith("not complete: 2 FAILED; ")
    again = study.run(
        code=1
    )  # the same command would not resume, and the message does not suggest it
    assert "--retry" in again.stdout
    assert "resumes" not in again.stdout
    assert messages[-2] in study.h2h("status", "tiny.yaml").stdout.splitlines()
    study.write(plugin=own_positional("pass"), base=SHORT, baseline=OWN)
    assert "STALE" not in study.run("--retry").stdout


@pytest.mark.slow
def test_ctrl_c_prints_the_command_that_resumes(study: Study) -> None:
    for body, option, text in (
        (
            "pass",
            "--fresh",
            "interrupted; finished runs are kept, and the same command without --fresh resumes\n",
        ),
        ("self", "--no-report", "their stacks: 1 incomplete run (positional 'own' has changed)\n"),
    ):
        study.write(
            plugin=own_positional(body), base={"train": {"steps": 100_000}}, baseline=OWN, seeds=1
        )
        parent = study.start("--no-tracking", option, "--set", "train.checkpoint_seconds=0")
        wait_for(lambda: study.holders() and set(study.states().values()) == {"RUNNING"})
        parent.send_signal(signal.SIGINT)
        output, _ = parent.communicate(timeout=120)
        assert parent.returncode == 130
        assert text in output
        assert "Traceback" not in output
        assert "INTERRUPTED" in study.h2h("status", "tiny.yaml").stdout


@pytest.mark.slow
def test_three_stacks_with_the_same_error_stop_the_experiment(study: Study) -> None:
    study.write(
        plugin=BROKEN, baseline=OWN, design=[{"product": {"model.d_ff": [8, 12, 16, 20]}}], seeds=1
    )
    done = study.run(code=1)
    assert (
        "stopped after 3 stacks failed in the same way: RuntimeError: cannot divide by 0"
        in done.stdout
    )
    assert sorted(study.states().values()) == ["FAILED"] * 3 + ["PLANNED"]


@pytest.mark.slow
def test_a_failing_variant_fails_no_other_variant_of_its_stack(study: Study) -> None:
    study.write(
        plugin=BROKEN,
        baseline={"positional": "none"},
        design=[{"one_at_a_time": {"positional": ["own", "alibi"]}}],
    )
    assert "training 6 runs in 1 stack" in study.run(code=1).stderr
    failed = {name for name, state in study.states().items() if state == "FAILED"}
    assert [name.partition("-")[0] for name in failed] == ["own", "own"]
    assert sorted(study.states().values()) == ["DONE"] * 4 + ["FAILED"] * 2
    assert len(stack_folders(study.experiment)) == 3


def test_a_constructor_that_fails_in_the_worker_fails_its_variant_and_not_the_study(
    study: Study,
) -> None:
    body = """
def build(self):
    if multiprocessing.parent_process() is not None:
        raise ValueError("no such device")

def rotate(self, x, positions, role, layer):
    return x
"""
    plugin = plugin_file(body, before="import multiprocessing\n")
    design = [{"one_at_a_time": {"positional": ["own"]}}]
    baseline = {"positional": "none"}
    study.write(plugin=plugin, base=SHORT, baseline=baseline, design=design, seeds=1)
    study.run(code=1)
    assert sorted(study.states().values()) == ["DONE", "FAILED"]
    (failed,) = (name for name, state in study.states().items() if state == "FAILED")
    assert failed.startswith("own-")
    status = files.read_json(study.experiment / failed / "status.json")
    assert re.fullmatch(r"ValueError: no such device \(mine\.py:\d+\)", status["reason"])


def test_a_worker_of_a_split_stack_ends_as_busy_and_one_of_a_damaged_stack_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stack = tmp_path / "stack"
    stack.mkdir()
    plugins = WorkerPlugins()
    assert work(stack, "cpu", plugins) == exits.BUSY
    (stack / "stack.json").write_text("{", encoding="utf-8")
    assert work(stack, "cpu", plugins) == exits.INPUT
    assert "stack.json" in capsys.readouterr().err


def test_a_plugin_that_is_missing_is_reported_with_the_run_that_uses_it(
    study: Study, capsys: pytest.CaptureFixture[str]
) -> None:
    study.write(design=[{"one_at_a_time": {"positional": ["alibi"]}}], seeds=1)
    study.run("--timeout", "0.000001", code=1)
    (stack,) = stack_folders(study.experiment)
    for run in stack.runs():
        with leased(run.path) as writer:
            writer.set_state("PLANNED")
    last = stack.runs()[-1].path
    record = files.read_json(last / "run.json")
    record["config"]["positional"]["encoder"]["name"] = "gone"
    files.write_json(last / "run.json", record)
    assert work(stack.path, "cpu", WorkerPlugins()) == exits.INPUT
    assert f"run '{last.name}' uses positional 'gone'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_stack_that_waits_for_another_process_is_counted_once(study: Study) -> None:
    study.write(base={"train": {"steps": 1_000_000}})
    study.run("--timeout", "0.5", code=1)
    failed, waiting = study.directories()
    for run, state in ((failed, "FAILED"), (waiting, "PLANNED")):
        with leased(run) as writer:
            writer.set_state(state, reason="the same fault", signature="the same fault")
    with Lease(waiting) as lease:
        threading.Timer(8 * scheduler.BUSY_SECONDS, lease.release).start()
        done = study.run("--timeout", "0.5", code=1)
    assert "stopped after" not in done.stdout
    assert done.stderr.count("waiting for another process that trains it") == 1
    assert study.states() == {failed.name: "FAILED", waiting.name: "TIMEOUT"}


def test_runs_that_another_process_trains_are_neither_archived_nor_reset(finished: Study) -> None:
    run = finished.directories()[-1]
    with leased(run) as writer:
        for option, state in (("--fresh", "DONE"), ("--retry", "FAILED")):
            writer.set_state(state)
            done = finished.run(option, code=2)
            assert re.fullmatch(
                rf"h2h: run '{run.name}' is in use by process \d+ on .*\n", done.stderr
            )
            assert not (finished.experiment / ".archived").exists()
            assert writer.state == state


@pytest.mark.slow
def test_a_stack_is_split_unless_another_process_trains_it(study: Study) -> None:
    study.run("--timeout", "0.000001", code=1)
    (folder,) = stack_folders(study.experiment)
    record = folder.record
    parts = [record.part([member]) for member in record.members]
    execution = scheduler._Execution(
        scheduler.Machine(LocalLauncher()), Watcher([]), study.experiment
    )
    with leased(study.directories()[1]):
        execution._split(folder, record, parts)
        assert folder.exists
        assert not execution._set_states(folder, "FAILED", "a fault")
    assert set(study.states().values()) == {"TIMEOUT"}
    execution._split(folder, record, parts)
    assert not folder.exists
    assert {stack.record.id for stack in stack_folders(study.experiment)} == {
        part.id for part in parts
    }


def test_a_time_limit_is_reported_after_another_command_has_removed_it(finished: Study) -> None:
    """The worker has read its limit at its start; since then, a command without a limit has changed the record."""
    stack = stack_folders(finished.experiment)[0]
    for run in stack.runs():
        with leased(run.path) as writer:
            writer.set_state("RUNNING")
    execution = scheduler._Execution(
        scheduler.Machine(LocalLauncher()), Watcher([]), finished.experiment
    )
    assert stack.record.timeout_seconds is None
    execution._handle(stack, stack.record, exits.TIMEOUT)
    assert {run.status.reason for run in stack.runs()} == {"over the time limit"}


def test_a_stack_over_its_time_limit_continues_from_its_resume_point_with_retry(
    study: Study,
) -> None:
    study.write(base={"train": {"steps": 1_000_000}})
    study.run("--timeout", "0.5", code=1)
    assert set(study.states().values()) == {"TIMEOUT"}
    first = _steps_of_resume_points(study)
    study.run("--timeout", "0.5", "--retry", code=1)
    assert set(study.states().values()) == {"TIMEOUT"}
    assert _steps_of_resume_points(study) > first
    for run in study.directories():
        assert not any(run.glob("attempts/*.metrics.jsonl"))


def _steps_of_resume_points(study: Study) -> int:
    (folder,) = stack_folders(study.experiment)
    names = [path.name for path in folder.path.glob("resume-*.safetensors")]
    return max(int(name.split("-")[1]) for name in names)


def test_a_run_over_its_time_limit_begins_anew_with_a_failed_run_of_its_stack(study: Study) -> None:
    study.write(base={"train": {"steps": 1_000_000}})
    study.run("--timeout", "0.5", code=1)
    with leased(study.directories()[0]) as writer:
        writer.set_state("FAILED", reason="a fault")
    study.run("--timeout", "0.000001", "--retry", code=1)
    assert set(study.states().values()) == {"TIMEOUT"}
    assert _steps_of_resume_points(study) <= 1


@pytest.mark.slow
def test_variants_of_one_shape_train_in_one_stack_and_can_be_loaded_and_reproduced(
    study: Study,
) -> None:
    others = {
        "positional": ["alibi"],
        "train.lr": [0.001],
        "train.label_smoothing": [0.1],
        "masking.encoder": ["none"],
    }
    study.write(
        base={"model": {"dropout": 0.0}, "train": {"steps": 20}},
        baseline={"positional": "t5-relative"},
        design=[{"one_at_a_time": others}],
    )
    assert "training 10 runs in 1 stack" in study.run().stderr
    (folder,) = stack_folders(study.experiment)
    assert sorted(Counter(member.variant for member in folder.record.members).values()) == [2] * 5
    own = next(path for path in study.directories() if "alibi" not in path.name)
    study.h2h("generate", own.name, "the cat sleeps")
    assert "bit-for-bit equal" in study.h2h("reproduce", own.name).stdout


@case_table("precision", ["bfloat16", "tf32"], default=1)
def test_a_precision_that_the_processor_lacks_is_refused(
    study: Study, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headtohead.model import precision as module

    monkeypatch.setattr(module, "bfloat16_speed", lambda: 0.02)
    study.write(base={"train": {"precision": precision}})
    done = study.run("--device", "cpu", code=2)
    assert f"train.precision '{precision}'" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not study.experiment.exists()


def test_a_fallback_is_logged_and_reported(study: Study) -> None:
    study.write(base={"train": {"backend": "cuda-graphs", "steps": 4}})
    reason = "train.backend cuda-graphs is not used: CUDA graphs require a CUDA device"
    assert f"2 of 2 runs done; {reason}" in study.run("--device", "cpu").stderr
    for path in study.experiment.glob("*/results.json"):
        results = files.read_json(path)
        assert results["backend"] == {"name": "eager", "why": "CUDA graphs require a CUDA device"}
        assert results["notes"] == [reason]
    assert f"2 runs: {reason}." in study.page().replace("\\", "")
