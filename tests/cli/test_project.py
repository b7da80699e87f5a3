"""A study belongs to the folder of its file, whatever the working directory."""

import json
import os
import sys
from pathlib import Path

import pytest
import yaml

import headtohead as h2h
from headtohead.cli.run import recorded_command
from made.study import TINY, Study

pytestmark = pytest.mark.usefixtures("without_figures")

DATA = {
    "dataset": "tatoeba",
    "pair": "eng-spa",
    "file": "../data/pairs.tsv",
    "valid": 10,
    "test": 10,
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, h2h_here, no_figures) -> Path:
    """A project with one finished run, started in its root."""
    root = tmp_path_factory.mktemp("project")
    for name in ("experiments", "data", "runs", "elsewhere/deep"):
        (root / name).mkdir(parents=True)
    rows = (f"word{i} word{i % 7}\tpalabra{i} palabra{i % 7}\n" for i in range(60))
    (root / "data" / "pairs.tsv").write_text("".join(rows), "utf-8")
    content = TINY | {
        "base": TINY["base"] | {"data": DATA, "train": {"steps": 2, "batch_tokens": 128}},
        "seeds": 1,
    }
    (root / "experiments" / "tiny.yaml").write_text(yaml.safe_dump(content), "utf-8")
    study = Study(root, root / "cache", h2h_here)
    with no_figures():
        done = study.run(file=Path("experiments/tiny.yaml"))
    assert done.stdout.splitlines()[-1] == "report: reports/tiny/index.html"
    return root


def test_every_command_finds_the_runs_from_another_folder(
    project: Path, tmp_path: Path, h2h_here
) -> None:
    file = os.path.relpath(project / "experiments" / "tiny.yaml", tmp_path)
    here = Study(tmp_path, project / "cache", h2h_here)
    planned = here.h2h("plan", file).stdout
    assert "1 done; nothing to run" in planned
    assert f"project: {project} (runs in {project / 'runs'})\n" in planned
    record = json.loads(here.h2h("plan", file, "--format", "json").stdout)
    assert (record["file"], record["command"]) == (
        "experiments/tiny.yaml",
        "h2h run experiments/tiny.yaml",
    )
    assert "1 runs: 1 DONE" in here.h2h("status", file).stdout
    assert f"{project}/reports/tiny/index.html" in here.h2h("report", file).stdout
    assert "training" not in here.run(file=Path(file)).stderr
    here.h2h("ablate-heads", file, "--no-decode")
    assert list(tmp_path.iterdir()) == []
    assert sorted(path.name for path in (project / "elsewhere").rglob("*")) == ["deep"]
    assert {path.name for path in (project / "experiments").iterdir()} == {"tiny.yaml"}


def test_a_name_is_looked_up_in_the_project_of_the_working_directory(
    project: Path, h2h_here
) -> None:
    deep = project / "elsewhere" / "deep"
    assert "1 runs: 1 DONE" in h2h_here(deep, "status", "tiny").stdout
    run = next((project / "runs" / "tiny").glob("*-s1-*")).name
    done = h2h_here(deep, "generate", run, "word1", H2H_CACHE=str(project / "cache"))
    assert done.returncode == 0, done.stderr


def test_python_finds_the_runs_from_any_folder(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = project / "experiments" / "tiny.yaml"
    monkeypatch.setenv("H2H_CACHE", str(project / "cache"))
    monkeypatch.chdir(tmp_path)
    assert list(h2h.results(file)["state"]) == ["DONE"]
    assert h2h.write_report(project / "runs" / "tiny").html.is_relative_to(project / "reports")
    monkeypatch.chdir(project / "elsewhere")
    run = next((project / "runs" / "tiny").glob("*-s1-*")).name
    assert h2h.load(run).path.samefile(project / "runs" / "tiny" / run)
    assert list(h2h.results("tiny")["state"]) == ["DONE"]


def test_a_run_is_loaded_in_a_working_directory_without_its_data(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("H2H_CACHE", str(tmp_path / "empty-cache"))
    monkeypatch.chdir(tmp_path)
    run = next((project / "runs" / "tiny").glob("*-s1-*"))
    assert h2h.load(run).translate(["word1"])


def test_a_path_on_the_command_line_is_relative_to_the_working_directory(
    project: Path, tmp_path: Path, h2h_here
) -> None:
    (tmp_path / "other.tsv").write_bytes((project / "data" / "pairs.tsv").read_bytes())
    file = str(project / "experiments" / "tiny.yaml")
    here = Study(tmp_path, tmp_path / "cache", h2h_here)
    done = here.h2h("plan", file, "--set", "data.file=other.tsv", "--format", "json")
    (variant,) = json.loads(done.stdout)["variants"]
    assert variant["config"]["data"]["options"]["file"] == str(tmp_path / "other.tsv")


def test_a_recorded_command_has_no_folder_of_the_machine(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = project / "experiments" / "tiny.yaml"
    words = (
        "run",
        str(file),
        "--runs",
        "/big/runs",
        "--seeds",
        "2",
        "--reports=/big/reports",
        "--only",
        "rotary",
    )
    monkeypatch.setattr(sys, "argv", ["h2h", *words])
    assert (
        recorded_command(file, project / "runs")
        == "h2h run experiments/tiny.yaml --seeds 2 --only rotary"
    )
