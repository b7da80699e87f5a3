"""A study belongs to the folder of its file, whatever the working directory."""

import json
import os
import sys
from pathlib import Path

import pytest
import yaml

import headtohead as h2h
from headtohead.cli.run import recorded_command

pytestmark = pytest.mark.usefixtures("without_figures")

TINY = {
    "question": "Where are its runs?",
    "base": {
        "data": {"dataset": "tatoeba", "pair": "eng-spa", "file": "../data/pairs.tsv", "valid": 10, "test": 10},
        "model": {"d_model": 8, "heads": 2, "layers": 1, "d_ff": 16, "dropout": 0.0},
        "train": {"steps": 2, "batch_tokens": 128, "lr": 0.005},
    },
    "seeds": 1,
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, h2h_here, no_figures) -> Path:
    """A project with one finished run, started in its root."""
    root = tmp_path_factory.mktemp("project")
    for name in ("experiments", "data", "runs", "elsewhere/deep"):
        (root / name).mkdir(parents=True)
    rows = (f"word{i} word{i % 7}\tpalabra{i} palabra{i % 7}\n" for i in range(60))
    (root / "data" / "pairs.tsv").write_text("".join(rows), "utf-8")
    (root / "experiments" / "tiny.yaml").write_text(yaml.safe_dump(TINY), "utf-8")
    with no_figures():
        done = h2h_here(root, "run", "experiments/tiny.yaml", "--no-tracking", H2H_CACHE=str(root / "cache"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "report: reports/tiny/index.html"
    return root


def test_every_command_finds_the_runs_from_another_folder(project: Path, tmp_path: Path, h2h_here) -> None:
    folder = tmp_path
    file = os.path.relpath(project / "experiments" / "tiny.yaml", folder)
    environment = {"H2H_CACHE": str(project / "cache")}
    planned = h2h_here(folder, "plan", file, **environment)
    assert "1 done; nothing to run" in planned.stdout, planned.stdout + planned.stderr
    assert f"project: {project} (runs in {project / 'runs'})\n" in planned.stdout
    assert "1 runs: 1 DONE" in h2h_here(folder, "status", file).stdout
    reported = h2h_here(folder, "report", file)
    assert f"{project}/reports/tiny/index.html" in reported.stdout, reported.stderr
    again = h2h_here(folder, "run", file, "--no-tracking", **environment)
    assert again.returncode == 0, again.stderr
    assert "training" not in again.stderr
    missing = h2h_here(folder, "ablate-heads", file, "--no-decode", **environment)
    assert missing.returncode == 0, missing.stderr
    assert list(tmp_path.iterdir()) == []
    assert sorted(path.name for path in (project / "elsewhere").rglob("*")) == ["deep"]
    assert {path.name for path in (project / "experiments").iterdir()} == {"tiny.yaml"}


def test_a_name_is_looked_up_in_the_project_of_the_working_directory(project: Path, h2h_here) -> None:
    deep = project / "elsewhere" / "deep"
    assert "1 runs: 1 DONE" in h2h_here(deep, "status", "tiny").stdout
    run = next((project / "runs" / "tiny").glob("*-s1-*")).name
    done = h2h_here(deep, "generate", run, "word1", H2H_CACHE=str(project / "cache"))
    assert done.returncode == 0, done.stderr


def test_python_finds_the_runs_from_any_folder(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = project / "experiments" / "tiny.yaml"
    monkeypatch.setenv("H2H_CACHE", str(project / "cache"))
    monkeypatch.chdir(tmp_path)
    assert h2h.plan(file).remaining == []
    assert list(h2h.results(file)["state"]) == ["DONE"]
    assert h2h.write_report(file).html == project / "reports" / "tiny" / "index.html"
    assert h2h.write_report(project / "runs" / "tiny").html.is_relative_to(project / "reports")
    result = h2h.run(file, tracking=False)
    assert result.complete
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
    words = ("plan", file, "--set", "data.file=other.tsv", "--format", "json")
    done = h2h_here(tmp_path, *words, H2H_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    (variant,) = json.loads(done.stdout)["variants"]
    assert variant["config"]["data"]["options"]["file"] == str(tmp_path / "other.tsv")


def test_options_override_the_folders_of_runs_and_reports(project: Path, tmp_path: Path, h2h_here) -> None:
    file = str(project / "experiments" / "tiny.yaml")
    environment = {"H2H_CACHE": str(project / "cache")}
    planned = h2h_here(tmp_path, "plan", file, "--runs", "mine/runs", **environment)
    assert "1 to run" in planned.stdout, planned.stderr
    assert f"(runs in {tmp_path}/mine/runs)" in planned.stdout
    planned = h2h_here(tmp_path, "plan", file, H2H_RUNS="other", **environment)
    assert f"(runs in {tmp_path}/other)" in planned.stdout
    words = ("report", file, "--reports", "here")
    assert "here/tiny/index.html" in h2h_here(tmp_path, *words).stdout
    assert "there/tiny/index.html" in h2h_here(tmp_path, "report", file, H2H_REPORTS="there").stdout


def test_a_record_has_the_path_of_its_file_relative_to_the_project_root(
    project: Path, tmp_path: Path, h2h_here
) -> None:
    file = os.path.relpath(project / "experiments" / "tiny.yaml", tmp_path)
    words = ("plan", file, "--format", "json")
    done = h2h_here(tmp_path, *words, H2H_CACHE=str(project / "cache"))
    record = json.loads(done.stdout)
    assert record["file"] == "experiments/tiny.yaml"
    assert record["command"] == "h2h run experiments/tiny.yaml"


def test_a_recorded_command_has_no_folder_of_the_machine(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = project / "experiments" / "tiny.yaml"
    words = ("run", str(file), "--runs", "/big/runs", "--seeds", "2", "--reports=/big/reports", "--only", "rotary")
    monkeypatch.setattr(sys, "argv", ["h2h", *words])
    assert recorded_command(file, project / "runs") == "h2h run experiments/tiny.yaml --seeds 2 --only rotary"
