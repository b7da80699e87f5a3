"""Run directories can be untrusted: no command executes code that their files name."""

import hashlib
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from headtohead import files
from headtohead.errors import HeadToHeadError
from headtohead.execution.repair import archive_runs
from made import case_table
from made.fake_study import record_checksums
from made.study import Study, own_positional


class Payload:
    """Create a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


@pytest.fixture
def received(finished: Study) -> Study:
    """A finished study in which every field that was ever unpickled or imported is an attack."""
    study = finished
    marker = study.folder / "attacked"
    attack = pickle.dumps([Payload(marker)])
    pickle.loads(attack)
    assert marker.exists(), "the attack itself must work"
    marker.unlink()
    named = study.folder / "named.py"
    named.write_text(f"import pathlib\npathlib.Path({str(marker)!r}).touch()\n")
    planned = [study.experiment / ".reproduced" / path.name for path in study.directories()]
    for folder in (study.experiment, *study.directories(), *planned):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".plugins.pickle").write_bytes(attack)
    for path in study.experiment.glob(".stacks/*/stack.json"):
        (path.parent / f"resume-1-{hashlib.sha256(attack).hexdigest()}.safetensors").write_bytes(
            attack
        )
        files.write_json(path, files.read_json(path) | {"plugin_files": [str(named)]})
    return study


@case_table(
    "arguments",
    [
        "reproduce {run}",
        "run {file} --no-tracking --workers 1 --seeds 3",
        "sync tiny",
        "report tiny",
        "ablate-heads {run} --no-decode",
        "plan {file}",
        "run {file} --no-tracking --workers 1",
    ],
    default=3,
)
def test_no_command_executes_code_from_a_study(
    received: Study, arguments: str, store_template: Path
) -> None:
    shutil.copyfile(store_template, received.folder / "mlflow.db")
    typed = arguments.format(run=received.directories()[0].name, file=received.file).split()
    done = received.here(received.folder, *typed, H2H_CACHE=str(received.cache))
    assert not (received.folder / "attacked").exists(), done.stdout + done.stderr
    assert done.returncode in {0, 2}
    assert "Traceback" not in done.stderr


@case_table("file", ["checkpoint.safetensors", "attention/maps.safetensors"], default=1)
def test_pickles_in_place_of_tensors_are_refused(received: Study, file: str) -> None:
    run = received.directories()[0]
    marker = received.folder / "attacked"
    (run / file).parent.mkdir(exist_ok=True)
    (run / file).write_bytes(pickle.dumps([Payload(marker)]))
    record_checksums(run)
    for typed in (["generate", run.name, "the cat"], ["report", "tiny"], ["reproduce", run.name]):
        received.here(received.folder, *typed, H2H_CACHE=str(received.cache))
        assert not marker.exists(), typed


@pytest.mark.slow
def test_reproduce_uses_the_plugins_of_the_caller_and_names_missing_plugins(study: Study) -> None:
    study.write(
        plugin=own_positional("pass"),
        baseline={"positional": "own"},
        seeds=1,
        base={"train": {"steps": 5}},
    )
    study.run()
    (run,) = study.directories()
    assert "mine.py" not in next(study.experiment.glob(".stacks/*/stack.json")).read_text()
    assert "--plugin FILE" in study.h2h("reproduce", run.name, code=2).stderr
    assert not (study.experiment / ".reproduced").exists()
    again = study.h2h("reproduce", run.name, "--plugin", "mine.py")
    assert again.stdout.endswith("weights and scores are bit-for-bit equal\n")


@pytest.mark.slow
def test_workers_use_the_plugin_file_as_loaded_by_the_command(study: Study) -> None:
    """The file changes while the study runs: all stacks are trained with the planned source."""
    changing = own_positional("pass", "import pathlib") + (
        "\n\n@hookimpl\ndef on_experiment_start(experiment):\n"
        "    pathlib.Path(__file__).write_text('raise SystemExit(9)')\n"
    )
    study.write(
        plugin=changing, baseline={"positional": "own"}, seeds=1, base={"train": {"steps": 5}}
    )
    study.run()
    assert (study.folder / "mine.py").read_text() == "raise SystemExit(9)"
    assert set(study.states().values()) == {"DONE"}


@case_table("link", ["run", ".stacks", "stack", "worker.log", ".archived"], default=2)
def test_training_follows_no_symbolic_link_out_of_the_experiment(
    finished: Study, link: str
) -> None:
    run, stack = finished.directories()[0], next(finished.experiment.glob(".stacks/*"))
    files.write_json(run / "status.json", {"state": "PLANNED", "attempt": 0})
    target = {
        "run": run,
        ".stacks": stack.parent,
        "stack": stack,
        "worker.log": stack / "worker.log",
        ".archived": finished.experiment / ".archived",
    }[link]
    outside = finished.folder / "outside"
    if target.exists():
        shutil.move(target, outside)
    else:
        outside.mkdir()
    target.symlink_to(outside)
    before = {path: path.stat().st_mtime_ns for path in (outside, *outside.rglob("*"))}
    done = finished.run(*(["--fresh"] if link == ".archived" else []), code=2)
    assert f"{target.relative_to(finished.folder)}' is a symbolic link" in done.stderr
    assert {path: path.stat().st_mtime_ns for path in (outside, *outside.rglob("*"))} == before


@pytest.mark.parametrize("fault", ["link of .archived", "damaged later stack"])
def test_a_refused_archiving_keeps_runs_and_resume_points(finished: Study, fault: str) -> None:
    runs = finished.directories()
    stacks = finished.experiment / ".stacks"
    resume_points = []
    for stack in stacks.iterdir():
        resume_points.append(stack / f"resume-1-{'0' * 64}.safetensors")
        resume_points[-1].touch()
    if fault == "link of .archived":
        (finished.experiment / ".archived").symlink_to(finished.folder)
    else:
        (stacks / "zz").mkdir()
        (stacks / "zz" / "stack.json").write_text("{")
    with pytest.raises(HeadToHeadError, match=r"symbolic link|stack\.json"):
        archive_runs(finished.experiment)
    assert all(path.exists() for path in [*runs, *resume_points])
