"""Archives of stacks: their files, and equal training on another machine."""

from __future__ import annotations

import io
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import TYPE_CHECKING

import pytest

from headtohead import files
from headtohead.errors import HeadToHeadError
from headtohead.execution import stack_archive
from headtohead.execution.remote import Message, RemoteJob
from headtohead.execution.stack_archive import FOLDER_TOKEN
from headtohead.execution.transfer import Transfer
from headtohead.plugins.launcher import Job, WorkerPlugins
from headtohead.storage import exits
from headtohead.storage.leases import Lease
from headtohead.storage.stack import StackFolder, stack_folders

if TYPE_CHECKING:
    from .conftest import Study

Command = Callable[..., CompletedProcess[str]]

PLUGIN = '''
from headtohead.plugin import Positional, hookimpl

class Mine(Positional):
    """Nothing, by a name of its own."""

    def rotate(self, x, positions, role):
        return x

@hookimpl
def register_positionals():
    return {"mine": Mine}
'''


@pytest.fixture(scope="module")
def created(tmp_path_factory: pytest.TempPathFactory, cache: Path, h2h_here: Command) -> Study:
    """A study with created stacks and no training: the time limit of its workers is almost zero."""
    from .conftest import Study

    study = Study(tmp_path_factory.mktemp("created"), cache)
    study.write(train={"steps": 40})
    done = h2h_here(
        study.folder,
        "run",
        str(study.file),
        "--no-tracking",
        "--threads",
        "1",
        "--timeout",
        "0.000001",
        H2H_CACHE=str(study.cache),
    )
    assert done.returncode == 1, done.stderr
    for path in study.experiment.glob("*/status.json"):
        path.unlink()
        (path.parent / "metrics.jsonl").unlink(missing_ok=True)
    for folder in stack_folders(study.experiment):
        folder.resume_points.clear()
        folder.change(timeout_seconds=None)
    return study


@pytest.fixture
def planned(study: Study, created: Study) -> Study:
    """A copy of the study with created stacks."""
    study.write(train={"steps": 40})
    shutil.copytree(created.runs, study.runs)
    return study


def messages(job: RemoteJob, parts: tuple[bytes, bytes] | None = None) -> list[Message]:
    fetch = None if parts is None else lambda: parts
    return [message for message in job.train(fetch) if message is not None]


def sent(study: Study, number: int = 0) -> Transfer:
    return Transfer(Job(stack_folders(study.experiment)[number].path, "cpu"), "cpu")


def test_a_copy_trains_the_same_and_its_results_are_returned(planned: Study) -> None:
    here, away = sent(planned, 0), sent(planned, 0)
    (end,) = messages(away.remote)  # A worker that can access the same folder trains in place.
    assert (end.kind, end.code, end.archive) == ("exit", exits.OK, b"")
    in_place = planned.content()
    assert len(in_place) == 2
    for name in in_place:
        for path in (planned.experiment / name).iterdir():
            if path.name not in {"run.json", "attempts"}:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert here.leased()
    end = messages(here.remote, (here.pack(), here.read_data()))[-1]
    assert (end.kind, end.code) == ("exit", exits.OK)
    assert planned.content() == {}
    here.receive(end)
    assert planned.content() == in_place
    assert {file["state"] for file in statuses(planned, in_place)} == {"DONE"}


def statuses(study: Study, names: object) -> list[dict[str, str]]:
    assert isinstance(names, dict)
    return [files.read_json(study.experiment / name / "status.json") for name in names]


def test_a_folder_with_the_same_path_and_another_marker_file_is_another_folder(planned: Study) -> None:
    transfer = sent(planned)
    (transfer.job.stack / FOLDER_TOKEN).write_text("a copy from last week")
    assert [message.kind for message in messages(transfer.remote)] == ["away"]
    (transfer.job.stack / FOLDER_TOKEN).unlink()
    assert [message.kind for message in messages(transfer.remote)] == ["away"]
    assert planned.content() == {}


def test_another_code_version_on_the_other_machine_is_refused(planned: Study) -> None:
    transfer = sent(planned)
    job = RemoteJob(transfer.remote.stack, "cpu", transfer.remote.folder_token, "0.1.0 (code 12345678)")
    (message,) = messages(job)
    assert message.kind == "refused"
    assert "this machine 0.1.0 (code 12345678); install the same version on both" in message.text


def test_locks_markers_and_shipper_files_are_not_archived(planned: Study) -> None:
    transfer = sent(planned)
    assert transfer.leased()
    run = StackFolder(transfer.job.stack).runs()[0].path
    (run / "mlflow.json").write_text("{}")
    with zipfile.ZipFile(io.BytesIO(transfer.pack())) as archive:
        names = {Path(name).name for name in archive.namelist()}
    assert {"stack.json", "run.json"} <= names
    assert not names & {f"{run.name}.json", f"{run.name}.lock", "stack.lock", "mlflow.json", FOLDER_TOKEN}


def test_a_stack_that_another_process_holds_is_not_sent(planned: Study) -> None:
    transfer = sent(planned)
    run = StackFolder(transfer.job.stack).runs()[0].path
    with Lease(run):
        assert not transfer.leased()
        assert transfer.busy().code == exits.BUSY
    assert transfer.leased()
    transfer.close()
    with Lease(run):
        pass


def test_a_copy_whose_leases_were_taken_over_changes_nothing(planned: Study) -> None:
    transfer = sent(planned)
    assert transfer.leased()
    message = Message("exit", code=exits.OK, archive=transfer.pack())
    run = StackFolder(transfer.job.stack).runs()[-1].path
    (run / "status.json").write_text('{"state": "DONE", "attempt": 2}')
    lease = planned.experiment / ".leases" / f"{run.name}.json"
    files.write_json(lease, files.read_json(lease) | {"token": "of another process"})
    ended = transfer.receive(message)
    assert ended is not None
    assert ended.code == exits.BUSY
    assert files.read_json(run / "status.json") == {"state": "DONE", "attempt": 2}
    transfer.close()
    assert files.read_json(lease)["token"] == "of another process"


@pytest.mark.slow
def test_the_status_done_is_written_last(planned: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    transfer = sent(planned)
    assert transfer.leased()
    end = messages(transfer.remote, (transfer.pack(), transfer.read_data()))[-1]
    written: list[Path] = []
    real = files.replace
    monkeypatch.setattr(files, "replace", lambda p, w: (written.append(p), real(p, w)))
    transfer.receive(end)
    last = [path.name for path in written[-2:]]
    assert last == ["status.json", "status.json"]
    assert "checkpoint.safetensors" in {path.name for path in written[:-2]}
    assert "stack.json" not in {path.name for path in written}


@pytest.mark.default_cases(1)
@pytest.mark.parametrize("name", ["../../outside.json", "/outside.json", "experiment.json"])
def test_returned_files_stay_within_the_folders_of_the_stack(planned: Study, name: str) -> None:
    before = (planned.experiment / "experiment.json").read_bytes()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, "taken over")
    with pytest.raises(HeadToHeadError, match=r"not a path inside|is not part of"):
        stack_archive.put_back(buffer.getvalue(), sent(planned).job.stack, ended=False)
    assert (planned.experiment / "experiment.json").read_bytes() == before
    assert not (planned.folder / "outside.json").exists()


def test_resume_points_are_transferred_and_removed_after_the_worker_removed_them(planned: Study) -> None:
    transfer = sent(planned)
    points = StackFolder(transfer.job.stack).resume_points

    def save(step: int) -> bytes:
        points.save(step, lambda path: path.write_text(f"the state of step {step}"))
        return transfer.pack()

    archives = {step: save(step) for step in (2, 4, 6)}
    light = stack_archive.pack(transfer.job.stack, tensors=False)
    points.clear()
    without = transfer.pack()
    for archive, ended, expected in (
        (archives[2], False, [2]),
        (archives[6], False, [6, 4]),
        (light, False, [6, 4]),
        (without, False, [6, 4]),
        (without, True, []),
    ):
        stack_archive.put_back(archive, transfer.job.stack, ended=ended)
        assert [point.step for point in points.newest_first()] == expected
        assert all(point.is_intact() for point in points.newest_first())


def test_notes_of_the_record_in_an_archive_are_added_once_to_the_local_record(planned: Study, tmp_path: Path) -> None:
    local = StackFolder(sent(planned).job.stack)
    local.note("a note of this machine")
    away = StackFolder(stack_archive.unpack(stack_archive.pack(local.path), b"", tmp_path / "node"))
    away.note("a note of the other machine")
    for _ in range(2):
        stack_archive.put_back(stack_archive.pack(away.path), local.path, ended=False)
    assert local.record.notes == ["a note of this machine", "a note of the other machine"]


def test_a_done_run_is_not_in_an_archive_without_tensors(planned: Study) -> None:
    transfer = sent(planned)
    first, *others = StackFolder(transfer.job.stack).runs()
    (first.path / "status.json").write_text('{"state": "DONE"}')
    with zipfile.ZipFile(io.BytesIO(stack_archive.pack(transfer.job.stack, tensors=False))) as archive:
        runs = {name.split("/")[0] for name in archive.namelist() if name.endswith("run.json")}
    assert runs == {run.path.name for run in others}


def test_plugin_files_and_local_data_files_are_archived(
    tmp_path: Path, study: Study, h2h_here: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"word{i} and word{i % 7}\tmot{i} et mot{i % 7}\n" for i in range(60)))
    plugin = tmp_path / "mine.py"
    plugin.write_text(PLUGIN)
    study.file.write_text(f"""
question: Does it travel?
base:
  data: {{dataset: tatoeba, file: {pairs}, pair: eng-fra}}
  model: {{d_model: 8, heads: 2, layers: 1, d_ff: 16}}
  train: {{steps: 5, batch_tokens: 64}}
baseline: {{positional: mine}}
seeds: 1
""")
    done = h2h_here(
        study.folder,
        "run",
        str(study.file),
        "--no-tracking",
        "--timeout",
        "0.000001",
        "--plugin",
        str(plugin),
        H2H_CACHE=str(study.cache),
    )
    assert done.returncode == 1, done.stderr
    (folder,) = stack_folders(study.experiment)
    folder.change(timeout_seconds=None)
    for run in folder.runs():
        (run.path / "status.json").unlink()
    sent = WorkerPlugins(files=((str(plugin), plugin.read_bytes()),))
    transfer = Transfer(Job(folder.path, "cpu", plugins=sent), "cpu")
    assert transfer.leased()
    parts = transfer.pack(), transfer.read_data()
    assert b"Mine" not in parts[0], "code does not travel among the files of a study"
    pairs.unlink()
    plugin.unlink()
    end = messages(transfer.remote, parts)[-1]
    transfer.receive(end)
    assert end.code == exits.OK, (folder.path / "worker.log").read_text()
    assert study.states() == {"DONE"}
