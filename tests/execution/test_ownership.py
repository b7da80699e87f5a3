"""Commands that delete files delete only those that headtohead wrote."""

from __future__ import annotations

import json
import shutil

import pytest
from PIL import Image

from catalogue.pages import write_files
from headtohead.ownership import claim, foreign, owned, remove
from headtohead.report.writing import write_report


@pytest.fixture
def clean(finished, h2h_here, tmp_path):
    """Call ``h2h clean`` on a finished study and a cache."""
    (tmp_path / "cache").mkdir()

    def call(*options):
        return h2h_here(finished.folder, "clean", "--cache", str(tmp_path / "cache"), *options)

    return call


def changed(path, **fields):
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def superseded(study):
    """Add a run that is in no plan."""
    run = study.experiment / "old-s1-00000000"
    shutil.copytree(study.directories()[0], run)
    return run


def test_the_run_that_init_from_names_stays(finished, clean):
    run, other = superseded(finished), finished.runs / "warm"
    other.mkdir()
    record = json.loads((finished.experiment / "experiment.json").read_text())
    record |= {"name": "warm", "runs": []}
    for variant in record["variants"]:
        variant["config"]["init_from"] = {"run": f"tiny/{run.name}", "weights": "0" * 64}
    (other / "experiment.json").write_text(json.dumps(record))
    assert clean("--yes").stdout == "nothing to remove\n"
    shutil.rmtree(other)
    assert "removed 1 folder" in clean("--yes").stdout
    assert not run.exists()


def test_foreign_files_in_removed_runs_stay(finished, clean):
    run = superseded(finished)
    (run / "notes.txt").write_text("mine")
    (run / "attention" / "mine.png").write_text("mine")
    (run / "attempts" / "more").mkdir(parents=True)
    (run / "link.json").symlink_to(finished.file)
    assert "removed 1 folder" in clean("--yes").stdout
    assert {path.name for path in run.rglob("*")} == {"notes.txt", "attention", "mine.png", "link.json"}
    assert finished.file.exists()
    assert clean("--yes").stdout == "nothing to remove\n"


def test_experiments_behind_links_are_not_cleaned(finished, clean, tmp_path):
    run = superseded(finished)
    elsewhere = tmp_path / "elsewhere"
    finished.experiment.rename(elsewhere)
    finished.experiment.symlink_to(elsewhere)
    assert clean("--yes").stdout == "nothing to remove\n"
    assert (elsewhere / run.name / "run.json").exists()


@pytest.mark.parametrize("name", ["experiment.json", "old-s1-00000000/run.json", "old-s1-00000000/status.json"])
@pytest.mark.parametrize("content", [None, "{"])
def test_cleaning_stops_at_a_record_that_is_missing_or_damaged(finished, clean, name, content):
    run, second = superseded(finished), finished.runs / "second"
    shutil.copytree(finished.experiment, second)
    shutil.copytree(run, second / "older-s1-00000000")
    changed(second / "experiment.json", name="second")
    record = finished.experiment / name
    record.unlink() if content is None else record.write_text(content)
    done = clean("--yes")
    assert done.returncode == 2, done.stdout
    assert done.stderr.startswith(f"h2h: cannot read 'runs/tiny/{name}': "), done.stderr
    assert done.stderr.endswith("; restore it, or move its folder away\n")
    assert (second / "older-s1-00000000" / "run.json").exists()


def test_trials_and_reproductions_are_listed(finished, clean):
    shutil.copytree(finished.experiment, finished.runs / ".try" / "tiny")
    shutil.copytree(finished.experiment, finished.experiment / ".reproduced" / "a run")
    lines = clean().stdout.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["reproduced", "trial"]
    assert "removed 2 folders" in clean("--yes").stdout
    assert not (finished.runs / ".try" / "tiny").exists()
    assert not (finished.experiment / ".reproduced" / "a run").exists()


def test_only_prepared_data_is_removed_from_a_cache(finished, clean, tmp_path, h2h_here):
    cache = tmp_path / "cache"
    assert h2h_here(finished.folder, "plan", str(finished.file), H2H_CACHE=str(cache)).returncode == 0
    assert list(cache.glob("prepared/*.npz"))
    for foreign_file in ("prepared/mine.npz", "prepared/x/mine", "compiled/mine.py", "mine"):
        (cache / foreign_file).parent.mkdir(exist_ok=True)
        (cache / foreign_file).write_text("mine")
    assert "removed 1 folder" in clean("--yes").stdout
    left = {path.relative_to(cache).as_posix() for path in cache.rglob("*") if path.is_file()}
    assert left == {"prepared/mine.npz", "prepared/x/mine", "compiled/mine.py", "mine"}
    assert clean("--yes").stdout == "nothing to remove\n"


def test_a_report_removes_only_its_own_figures(finished, tmp_path, monkeypatch):
    from headtohead.report import writing

    figures = tmp_path / "reports" / "tiny" / "figures"
    monkeypatch.setattr(writing, "draw", lambda content: {"old": "<svg/>"})
    write_report(finished.experiment, tmp_path / "reports")
    (figures / "mine.svg").write_text("mine")
    monkeypatch.setattr(writing, "draw", lambda content: {"new": "<svg/>"})
    write_report(finished.experiment, tmp_path / "reports")
    assert {path.name for path in figures.iterdir()} == {"new.svg", "mine.svg"}


def test_export_replaces_only_its_own_files(finished, h2h_here):
    run, model = finished.directories()[0].name, finished.folder / "model"
    model.mkdir()
    (model / "README.md").write_text("mine")
    done = h2h_here(finished.folder, "export", run, "model", "--force", H2H_CACHE=str(finished.cache))
    assert done.returncode == 2, done.stdout
    assert done.stderr == "h2h: 'model/README.md' is not a file of h2h export; choose another folder, or move it away\n"
    assert [path.name for path in model.iterdir()] == ["README.md"]
    (model / "README.md").rename(model / "notes.md")
    for _ in range(2):
        done = h2h_here(finished.folder, "export", run, "model", "--force", H2H_CACHE=str(finished.cache))
        assert done.returncode == 0, done.stderr
    assert (model / "notes.md").read_text() == "mine"


def test_the_catalogue_removes_only_its_own_pictures(tmp_path):
    (tmp_path / "pictures").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "pictures" / "mine.png")
    write_files(tmp_path, {"index.md": "", "pictures.md": ""})
    write_files(tmp_path, {"index.md": ""})
    assert (tmp_path / "pictures" / "mine.png").exists()
    assert not (tmp_path / "pictures.md").exists()


def test_a_manifest_never_names_files_outside_its_folder_or_behind_links(tmp_path):
    folder, other = tmp_path / "folder", tmp_path / "other"
    other.mkdir()
    for name in ("a", "b"):
        (other / name).write_text("mine")
    claim(folder, ["../other/a", "link/b", str(other / "a"), "b"])
    (folder / "link").symlink_to(other)
    (folder / "b").symlink_to(other / "b")
    (folder / "c").write_text("mine")
    assert foreign(folder, ["b", "c", "d"]) == ["c"]
    remove(folder, owned(folder))
    assert {path.name for path in other.iterdir()} == {"a", "b"}
    assert {path.name for path in folder.iterdir()} == {"link", "b", "c"}
