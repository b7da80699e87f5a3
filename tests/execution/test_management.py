"""``h2h list``, ``h2h show`` and ``h2h clean`` on trained runs; commands delete only files that headtohead wrote."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from matplotlib.figure import Figure

from headtohead import files
from headtohead.errors import HeadToHeadError
from headtohead.execution.cleaning import find_leftovers, remove
from headtohead.ownership import claim, foreign, names_in_manifest, write
from headtohead.ownership import remove as remove_owned
from headtohead.report import writing
from headtohead.storage import states
from headtohead.storage.leases import Lease
from headtohead.storage.run_directory import checksums, leased
from made import case_table
from made.fake_study import edit
from made.study import Completed, Study

Clean = Callable[..., Completed]


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def tree(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name[0] != "."}


@pytest.fixture
def clean(finished: Study, tmp_path: Path) -> Clean:
    """Call ``h2h clean`` on a finished study and a cache."""
    (tmp_path / "cache").mkdir()
    study = replace(finished, cache=tmp_path / "cache")
    return lambda *options, code=0: study.h2h("clean", *options, code=code)


@pytest.fixture
def superseded(finished: Study) -> Path:
    """A run that is in no plan."""
    return Path(shutil.copytree(finished.directories()[0], finished.experiment / "old-s1-00000000"))


@pytest.fixture
def cluttered(finished: Study, superseded: Path) -> Study:
    """A finished study with an archived, a superseded and a failed run."""
    run, failed = finished.directories()[:2]
    shutil.copytree(run, finished.experiment / ".archived" / "2026" / run.name)
    edit(failed / "status.json", state="FAILED", reason="ValueError: no", files={})
    return finished


def test_list_shows_experiments_with_states_size_and_question(finished: Study) -> None:
    header, row = finished.h2h("list").stdout.splitlines()
    assert header.split() == ["experiment", "runs", "size", "last", "change", "question"]
    assert "tiny" in row
    (record,) = json.loads(finished.h2h("list", "--format", "json").stdout)
    assert record["runs"] == {"DONE": 2}
    assert record["bytes"] > 10_000
    (finished.runs / "broken").mkdir()
    (finished.runs / "broken" / "experiment.json").write_text("{")
    done = finished.h2h("list", code=2)
    assert "tiny" in done.stdout
    assert len(done.stderr.splitlines()) == 1
    assert "broken" in done.stderr


def test_show_has_files_and_how_to_load_and_ends_with_the_scores(finished: Study) -> None:
    run = finished.directories()[0]
    output = finished.h2h("show", run.name).stdout
    results = files.read_json(run / "results.json")["metrics"]
    lines = [" ".join(line.split()) for line in output.splitlines()]
    assert f"test/exact_match {results['test/exact_match']:.3f}" in lines
    assert lines[-1].startswith("valid/token_accuracy ")
    assert f'load: headtohead.load("{run.name}") in Python' in output
    assert "checkpoint.safetensors (" in output
    assert "d_model" not in output
    record = json.loads(finished.h2h("show", run.name, "--format", "json").stdout)
    assert (record["state"], record["metrics"]) == ("DONE", results)
    shown = finished.h2h("show", run.name, "--config").stdout
    assert (
        yaml.safe_load(shown)
        == record["run"]["config"]
        == files.read_json(run / "run.json")["config"]
    )


def test_a_run_is_found_by_prefix_and_experiment(finished: Study) -> None:
    prefix = finished.directories()[0].name.rpartition("-")[0]
    assert finished.h2h("show", prefix.replace("-", "_"), code=2).stderr.endswith(
        f"; did you mean '{prefix}'?\n"
    )
    shutil.copytree(finished.directories()[0], finished.runs / "other" / f"{prefix}-00000000")
    assert f"'{prefix}' matches 2 runs" in finished.h2h("show", prefix, code=2).stderr
    assert f"directory: runs/tiny/{prefix}-" in finished.h2h("show", f"tiny/{prefix}").stdout
    assert len(finished.h2h("show", f"*/{prefix}", code=2).stderr.splitlines()) == 1


def test_clean_lists_and_removes_only_with_yes(cluttered: Study, clean: Clean) -> None:
    before = tree(cluttered.experiment)
    lines = clean().stdout.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["archived", "failed", "superseded"]
    assert "FAILED: ValueError: no" in "".join(lines)
    assert tree(cluttered.experiment) == before
    assert clean("--yes").stdout.splitlines()[-1].startswith("removed 3 folders, ")
    kept = {path.name for path in cluttered.directories()} | {
        "experiment.json",
        "reference_points.json",
    }
    assert tree(cluttered.experiment) == kept
    assert list((cluttered.experiment / ".archived").iterdir()) == []
    assert clean().stdout == "nothing to remove\n"


def test_clean_keeps_a_run_that_finished_after_it_was_listed(
    cluttered: Study, tmp_path: Path
) -> None:
    failed = cluttered.directories()[1]
    (leftover,) = (
        found for found in find_leftovers(cluttered.runs, tmp_path) if found.kind == "failed"
    )
    assert leftover.path == failed
    with leased(failed) as writer:
        writer.set_state(states.DONE, reason=None, files=checksums(failed))
    remove([leftover])
    assert failed.is_dir()


def test_clean_removes_nothing_while_a_run_is_in_use(
    cluttered: Study, superseded: Path, clean: Clean
) -> None:
    before = tree(cluttered.experiment)
    with Lease(superseded):
        assert "in use by process" in clean("--yes", code=2).stderr
    assert tree(cluttered.experiment) == before


def test_a_run_that_another_experiment_reuses_is_kept(finished: Study, clean: Clean) -> None:
    run = finished.directories()[0]
    other = finished.runs / "other"
    shutil.copytree(finished.experiment, other)
    shutil.rmtree(other / run.name)
    planned = files.read_json(finished.experiment / "experiment.json")["runs"]
    reused = [
        entry | ({"reused_from": f"tiny/{run.name}"} if entry["directory"] == run.name else {})
        for entry in planned
    ]
    edit(other / "experiment.json", name="other", runs=reused)
    left = [entry for entry in planned if entry["directory"] != run.name]
    edit(finished.experiment / "experiment.json", runs=left)
    assert clean("--only", "superseded").stdout == "nothing to remove\n"


def test_foreign_files_in_removed_runs_stay(
    finished: Study, superseded: Path, clean: Clean
) -> None:
    (superseded / "notes.txt").write_text("mine")
    (superseded / "attention" / "mine.png").write_text("mine")
    (superseded / "attempts" / "more").mkdir(parents=True)
    (superseded / "link.json").symlink_to(finished.file)
    assert "removed 1 folder" in clean("--yes").stdout
    assert {path.name for path in superseded.rglob("*")} == {
        "notes.txt",
        "attention",
        "mine.png",
        "link.json",
    }
    assert finished.file.exists()
    assert clean("--yes").stdout == "nothing to remove\n"


def test_experiments_behind_links_are_not_cleaned(
    finished: Study, superseded: Path, clean: Clean, tmp_path: Path
) -> None:
    finished.experiment.rename(tmp_path / "elsewhere")
    finished.experiment.symlink_to(tmp_path / "elsewhere")
    assert clean("--yes").stdout == "nothing to remove\n"
    assert (superseded / "run.json").exists()


def test_cleaning_stops_at_a_record_that_is_missing_or_damaged(
    finished: Study, superseded: Path, clean: Clean
) -> None:
    second = finished.runs / "second"
    shutil.copytree(finished.experiment, second)
    edit(second / "experiment.json", name="second")
    for name in (
        "experiment.json",
        f"{superseded.name}/run.json",
        f"{superseded.name}/status.json",
    ):
        record = finished.experiment / name
        content = record.read_bytes()
        for damage in (record.unlink, lambda record=record: record.write_text("{")):
            damage()
            assert clean("--yes", code=2).stderr.startswith(
                f"h2h: cannot read 'runs/tiny/{name}': "
            )
            assert (second / superseded.name / "run.json").exists()
        record.write_bytes(content)


@pytest.fixture
def reusing(finished: Study, superseded: Path) -> Path:
    """An experiment without runs of its own: it reuses a run that its own experiment has dropped."""
    other = finished.runs / "other"
    other.mkdir()
    record = files.read_json(finished.experiment / "experiment.json") | {"name": "other"}
    record["runs"] = [record["runs"][0] | {"reused_from": f"tiny/{superseded.name}"}]
    files.write_json(other / "experiment.json", record)
    return other


TRACES = [
    ".layout.lock",
    ".leases/a.lock",
    ".stacks/a/stack.json",
    "reference_points.json",
    "shipper-mlflow.log",
]


@case_table("trace", TRACES, default=2)
def test_nothing_is_removed_if_the_record_of_an_experiment_without_runs_is_missing(
    finished: Study, superseded: Path, reusing: Path, clean: Clean, trace: str
) -> None:
    assert clean("--yes").stdout == "nothing to remove\n"
    (reusing / trace).parent.mkdir(parents=True, exist_ok=True)
    (reusing / trace).touch()
    (reusing / "experiment.json").rename(finished.folder / "lost.json")
    error = clean("--yes", code=2).stderr
    assert error.startswith(
        "h2h: cannot read 'runs/other/experiment.json': no such file; nothing is removed, "
    )
    assert (superseded / "run.json").exists()
    shutil.rmtree(reusing)
    assert "removed 1 folder" in clean("--yes").stdout


def test_nothing_is_removed_if_a_folder_cannot_be_listed(
    finished: Study, superseded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = finished.runs / "lost+found"
    locked.mkdir()
    listdir = os.listdir

    def refuse(path: Path) -> list[str]:  # root can list a folder of any mode
        if Path(path) == locked:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(HeadToHeadError) as raised:
        list(find_leftovers(finished.runs, tmp_path))
    assert str(raised.value) == (
        f"cannot read '{locked}': Permission denied; nothing is removed, since it could be an experiment that needs "
        "any run; make it readable, or move it out of the runs folder"
    )


def test_nothing_is_removed_if_an_experiment_is_on_a_disk_that_is_not_mounted(
    finished: Study, superseded: Path, clean: Clean
) -> None:
    (finished.runs / "other").symlink_to(finished.folder / "not-mounted")
    assert clean("--yes", code=2).stderr == (
        "h2h: cannot read 'runs/other': the target of the link does not exist; nothing is removed, since it could be "
        "an experiment that needs any run; make it readable, or move it out of the runs folder\n"
    )
    assert (superseded / "run.json").exists()


def test_a_run_that_a_copy_of_an_experiment_reuses_is_kept(
    superseded: Path, reusing: Path, clean: Clean
) -> None:
    reusing.rename(reusing.with_name("copy"))
    assert clean("--yes").stdout == "nothing to remove\n"
    assert (superseded / "run.json").exists()


def test_folders_of_others_in_the_runs_folder_do_not_stop_cleaning(
    finished: Study, superseded: Path, clean: Clean
) -> None:
    (finished.runs / "notes").mkdir()
    (finished.runs / "notes" / "results.json").write_text("mine")
    assert "removed 1 folder" in clean("--yes").stdout
    assert (finished.runs / "notes" / "results.json").read_text() == "mine"


def test_reproductions_are_removed(finished: Study, clean: Clean) -> None:
    folder = finished.experiment / ".reproduced" / "a run"
    shutil.copytree(finished.experiment, folder, ignore=shutil.ignore_patterns(".*"))
    assert "removed 1 folder," in clean("--yes").stdout
    assert not folder.exists()


def test_only_prepared_data_is_removed_from_a_cache(
    finished: Study, clean: Clean, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    finished.here(finished.folder, "plan", str(finished.file), H2H_CACHE=str(cache))
    assert list(cache.glob("prepared/*.npz"))
    foreign_files = {"prepared/mine.npz", "prepared/x/mine", "compiled/mine.py", "mine"}
    for name in foreign_files:
        (cache / name).parent.mkdir(exist_ok=True)
        (cache / name).write_text("mine")
    assert "removed 1 folder" in clean("--yes").stdout
    assert {
        path.relative_to(cache).as_posix() for path in cache.rglob("*") if path.is_file()
    } == foreign_files
    assert clean("--yes").stdout == "nothing to remove\n"


def test_a_report_removes_only_its_own_figures(
    finished: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = tmp_path / "reports" / "tiny" / "figures"
    for name in ("old", "new"):
        monkeypatch.setattr(writing, "draw", lambda report, name=name: {name: Figure()})
        writing.write_report(finished.experiment, tmp_path / "reports")
        (figures / "mine.svg").write_text("mine")
    assert {path.name for path in figures.iterdir()} == {"new.svg", "mine.svg"}


def test_export_replaces_only_its_own_files(finished: Study) -> None:
    command, model = ("export", finished.directories()[0].name, "model"), finished.folder / "model"
    model.mkdir()
    (model / "README.md").write_text("mine")
    assert (
        "'model/README.md' was not written by headtohead; move it away"
        in finished.h2h(*command, "--force", code=2).stderr
    )
    assert [path.name for path in model.iterdir()] == ["README.md"]
    (model / "README.md").rename(model / "notes.md")
    assert "is not empty" in finished.h2h(*command, code=2).stderr
    for _ in range(2):
        finished.h2h(*command, "--force")
    assert (model / "notes.md").read_text() == "mine"


@pytest.mark.parametrize("name", ["README.md", "config.json"])
def test_export_never_replaces_a_file_that_was_edited(finished: Study, name: str) -> None:
    command, edited = (
        ("export", finished.directories()[0].name, "model", "--force"),
        finished.folder / "model" / name,
    )
    finished.h2h(*command)
    with edited.open("a") as file:
        file.write("my notes")
    before = contents(edited.parent)
    error = finished.h2h(*command, code=2).stderr
    assert (
        error
        == f"h2h: 'model/{name}' was changed after headtohead wrote it; move it away, or choose another folder\n"
    )
    assert contents(edited.parent) == before
    edited.rename(edited.with_name("notes"))
    finished.h2h(*command)
    assert (edited.parent / "notes").read_text().endswith("my notes")


@pytest.mark.parametrize("name", ["report.md", "results.csv"])
def test_a_report_never_replaces_a_file_that_was_edited(finished: Study, name: str) -> None:
    finished.h2h("report", "tiny")
    edited = finished.folder / "reports" / "tiny" / name
    with edited.open("a") as file:
        file.write("my notes")
    before = contents(edited.parent)
    message = (
        f"h2h: 'reports/tiny/{name}' was changed after headtohead wrote it; move it away, "
        "or choose another folder"
    )
    changed = ("--set", "train.steps=61", "--name", "label")
    assert finished.h2h("report", "tiny", code=2).stderr.startswith(message)
    assert finished.run(code=2).stderr.startswith(message)
    assert contents(edited.parent) == before
    shutil.copytree(edited.parent, edited.parent.with_name("tiny-label"))
    assert finished.run(*changed, code=2).stderr.startswith(message.replace("tiny", "tiny-label"))
    assert not list(finished.runs.glob("tiny-label/*/run.json")), (
        "nothing is trained before the message"
    )
    finished.h2h("report", "tiny", "--reports", "elsewhere")
    edited.unlink()
    finished.h2h("report", "tiny")


def test_a_report_of_a_fresh_clone_is_replaced_and_a_folder_of_others_is_not(
    finished: Study,
) -> None:
    finished.h2h("report", "tiny")
    folder = finished.folder / "reports" / "tiny"
    (folder / ".headtohead.jsonl").unlink()  # git ignores it
    (folder / "report.md").write_text("the report of another machine")
    finished.h2h("report", "tiny")
    assert (folder / "report.md").read_text() != "the report of another machine"
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "results.csv").write_text("mine")
    assert "was not written by headtohead" in finished.h2h("report", "tiny", code=2).stderr
    assert contents(folder) == {"results.csv": b"mine"}


def test_a_file_that_two_processes_write_at_once_belongs_to_headtohead(tmp_path: Path) -> None:
    """Both list their content first, so whichever content stays is listed."""
    write(tmp_path, {"a": b"first"}, "")
    write(tmp_path, {"a": b"second"}, "")
    (tmp_path / "a").write_bytes(b"first")
    assert foreign(tmp_path, ["a"]) == []
    (tmp_path / "a").write_bytes(b"third")
    assert foreign(tmp_path, ["a"]) == ["a"]
    remove_owned(tmp_path, ["a"])
    assert (tmp_path / "a").read_bytes() == b"third"


def test_a_manifest_never_names_files_outside_its_folder_or_behind_links(tmp_path: Path) -> None:
    folder, other = tmp_path / "folder", tmp_path / "other"
    other.mkdir()
    for name in ("a", "b"):
        (other / name).write_text("mine")
    claim(folder, ["../other/a", "link/b", str(other / "a"), "b"])
    (folder / "link").symlink_to(other)
    (folder / "b").symlink_to(other / "b")
    (folder / "c").write_text("mine")
    assert foreign(folder, ["b", "c", "d"]) == ["c"]
    remove_owned(folder, names_in_manifest(folder))
    assert {path.name for path in other.iterdir()} == {"a", "b"}
    assert {path.name for path in folder.iterdir()} == {"link", "b", "c"}
