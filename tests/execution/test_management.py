"""``h2h list``, ``h2h show`` and ``h2h clean`` on trained runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from headtohead.errors import nearest
from headtohead.execution.cleaning import find_leftovers, remove
from headtohead.storage import states
from headtohead.storage.leases import Lease
from headtohead.storage.run_directory import checksums, leased

Command = Callable[..., object]


def tree(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name[0] != "."}


@pytest.fixture
def cluttered(finished):
    """A finished study with an archived, a superseded and a failed run."""
    run, failed = finished.directories()[:2]
    shutil.copytree(run, finished.experiment / "old-s1-00000000")
    shutil.copytree(run, finished.experiment / ".archived" / "2026" / run.name)
    status = json.loads((failed / "status.json").read_text())
    (failed / "status.json").write_text(
        json.dumps(status | {"state": "FAILED", "reason": "ValueError: no", "files": {}})
    )
    return finished


def test_list_shows_experiments_with_states_size_and_question(finished, h2h_here):
    done = h2h_here(finished.file.parent, "list")
    header, row = done.stdout.splitlines()
    assert header.split() == ["experiment", "runs", "size", "last", "change", "question"]
    assert row.startswith(finished.experiment.name)
    assert f"{len(finished.directories())} DONE" in row
    (record,) = json.loads(h2h_here(finished.file.parent, "list", "--format", "json").stdout)
    assert record["runs"] == {"DONE": len(finished.directories())}
    assert record["bytes"] > 10_000


def test_list_names_a_damaged_experiment_and_shows_the_others(finished, h2h_here):
    (finished.runs / "broken").mkdir()
    (finished.runs / "broken" / "experiment.json").write_text("{")
    done = h2h_here(finished.file.parent, "list")
    assert done.returncode == 2
    assert finished.experiment.name in done.stdout
    assert len(done.stderr.splitlines()) == 1
    assert "broken" in done.stderr


def test_list_of_an_empty_folder_names_the_next_command(tmp_path, h2h_here):
    done = h2h_here(tmp_path, "list")
    assert (done.returncode, done.stdout) == (0, "no experiments in 'runs'; start with h2h run FILE\n")


def test_show_has_scores_files_configuration_and_how_to_load(finished, h2h_here):
    run = finished.directories()[0]
    done = h2h_here(finished.file.parent, "show", run.name)
    results = json.loads((run / "results.json").read_text())["metrics"]
    assert done.returncode == 0
    assert f"  test/exact_match: {results['test/exact_match']:.3f}" in done.stdout
    assert "  checkpoint.safetensors: " in done.stdout
    assert "    d_model: " in done.stdout
    assert done.stdout.splitlines()[-1].startswith(f'load: headtohead.load("{run.name}")')
    record = json.loads(h2h_here(finished.file.parent, "show", run.name, "--format", "json").stdout)
    assert (record["state"], record["metrics"]) == ("DONE", results)


def test_show_of_an_unknown_run_is_one_line(finished, h2h_here):
    done = h2h_here(finished.file.parent, "show", "nothing")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert done.stderr.startswith("h2h: no run 'nothing' in 'runs'")
    name = finished.directories()[0].name.rpartition("-")[0]
    done = h2h_here(finished.file.parent, "show", name.replace("-", "_"))
    assert done.stderr.endswith(f"; did you mean '{name}'?\n")


def test_an_experiment_before_a_prefix_selects_its_run(finished, h2h_here):
    folder, prefix = finished.file.parent, finished.directories()[0].name.rpartition("-")[0]
    shutil.copytree(finished.directories()[0], finished.runs / "other" / f"{prefix}-00000000")
    done = h2h_here(folder, "show", prefix)
    assert done.returncode == 2
    assert f"'{prefix}' matches 2 runs, for example other/{prefix}-00000000 and tiny/{prefix}-" in done.stderr
    assert done.stderr.endswith("; use a longer prefix, or EXPERIMENT/ before it\n")
    done = h2h_here(folder, "show", f"tiny/{prefix}")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"directory: runs/tiny/{prefix}-" in done.stdout
    done = h2h_here(folder, "trace", f"tiny/{prefix}", "the cat sees a dog")
    assert done.returncode == 0, done.stderr
    done = h2h_here(folder, "show", f"*/{prefix}")
    assert done.stderr.startswith(f"h2h: no run '*/{prefix}' in 'runs'")


def test_maps_are_not_written_into_a_file(tmp_path, h2h_here):
    (tmp_path / "x").touch()
    done = h2h_here(tmp_path, "attention", "run", "a dog", "--out", "x")
    assert done.returncode == 2
    assert "Directory 'x' is a file (options: " in done.stderr


def test_an_error_lists_a_limited_number_of_names():
    assert nearest("zzz", map(str, range(1000, 1100))).endswith(", 1039 and 60 more")


def test_clean_lists_and_removes_only_with_yes(cluttered, h2h_here, tmp_path):
    before, cache = tree(cluttered.experiment), ("--cache", str(tmp_path / "no cache"))
    done = h2h_here(cluttered.file.parent, "clean", *cache)
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["archived", "failed", "superseded"]
    assert "FAILED: ValueError: no" in done.stdout
    assert lines[-1].endswith("nothing was removed: add --yes")
    assert tree(cluttered.experiment) == before

    done = h2h_here(cluttered.file.parent, "clean", "--yes", *cache)
    assert done.stdout.splitlines()[-1].startswith("removed 3 folders, ")
    failed = cluttered.directories()
    assert tree(cluttered.experiment) == {path.name for path in failed} | {"experiment.json", "reference_points.json"}
    assert list((cluttered.experiment / ".archived").iterdir()) == []
    assert h2h_here(cluttered.file.parent, "clean", *cache).stdout == "nothing to remove\n"


@pytest.mark.slow
def test_a_failed_run_that_was_removed_is_trained_again(cluttered, undisturbed, same_results, h2h_here):
    h2h_here(cluttered.file.parent, "clean", "--yes")
    cluttered.run()
    same_results(cluttered, undisturbed)


def test_clean_keeps_a_run_that_finished_after_it_was_listed(cluttered, tmp_path):
    failed = cluttered.directories()[1]
    (leftover,) = find_leftovers(cluttered.runs, tmp_path, ["failed"])
    assert leftover.path == failed
    with leased(failed) as writer:
        writer.set_state(states.DONE, reason=None, files=checksums(failed))
    remove([leftover])
    assert failed.is_dir()


def test_clean_removes_nothing_while_a_run_is_in_use(cluttered, h2h_here):
    before = tree(cluttered.experiment)
    with Lease(cluttered.experiment / "old-s1-00000000"):
        done = h2h_here(cluttered.file.parent, "clean", "--yes")
    assert done.returncode == 2
    assert "in use by process" in done.stderr
    assert tree(cluttered.experiment) == before


def test_a_run_that_another_experiment_reuses_is_kept(finished, h2h_here):
    run = finished.directories()[0]
    other = finished.runs / "other"
    shutil.copytree(finished.experiment, other)
    for folder in (other, finished.experiment):
        record = json.loads((folder / "experiment.json").read_text())
        if folder == other:
            record["name"] = "other"
            for planned in record["runs"]:
                if planned["directory"] == run.name:
                    planned["reused_from"] = f"{finished.experiment.name}/{run.name}"
            shutil.rmtree(other / run.name)
        else:
            record["runs"] = [planned for planned in record["runs"] if planned["directory"] != run.name]
        (folder / "experiment.json").write_text(json.dumps(record))
    assert h2h_here(finished.file.parent, "clean", "--only", "superseded").stdout == "nothing to remove\n"
