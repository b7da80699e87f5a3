"""The root folder of a project."""

from pathlib import Path

import pytest

from headtohead.config.project import project_root, reports_folder, runs_folder


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("H2H_RUNS", "H2H_REPORTS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("made", "root"),
    [
        ((), "a/b"),
        (("a/runs/",), "a"),
        (("runs/", "a/runs/"), "a"),
        (("runs/", "a/b/runs/"), "a/b"),
        (("pyproject.toml",), "."),
        ((".git/",), "."),
        ((".git",), "."),  # In a git worktree, .git is a file.
        ((".git/", "runs/"), "."),
        (("a/pyproject.toml", "runs/"), "a"),
        (("runs",), "a/b"),  # a file
        (("runs/__init__.py",), "a/b"),  # a Python package
    ],
)
def test_the_root_is_the_nearest_folder_with_runs_or_a_project(
    tmp_path: Path, made: tuple[str, ...], root: str
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in made:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            (tmp_path / name).mkdir()
        else:
            (tmp_path / name).touch()
    expected = (tmp_path / root).resolve()
    assert project_root(tmp_path / "a" / "b" / "x.yaml") == expected
    assert project_root(tmp_path / "a" / "b" / ".." / "b" / "x.yaml") == expected
    assert runs_folder(tmp_path / "a" / "b" / "x.yaml") == expected / "runs"


def test_a_linked_file_belongs_to_the_folder_of_the_link(tmp_path: Path) -> None:
    for name in ("one/runs", "two/runs"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "one" / "x.yaml").touch()
    (tmp_path / "two" / "x.yaml").symlink_to(tmp_path / "one" / "x.yaml")
    assert project_root(tmp_path / "two" / "x.yaml") == tmp_path / "two"


def test_without_a_file_the_working_directory_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs" / "quickstart").mkdir(parents=True)
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    assert runs_folder() == runs_folder("quickstart") == tmp_path / "runs"
    assert reports_folder(runs_folder()) == tmp_path / "reports"
    monkeypatch.chdir(tmp_path)
    assert runs_folder() == Path("runs")  # short names in messages
    assert reports_folder(runs_folder()) == Path("reports")


def test_options_override_variables_and_variables_override_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x.yaml"
    monkeypatch.setenv("H2H_RUNS", "from-variable")
    monkeypatch.setenv("H2H_REPORTS", "pages")
    assert runs_folder(file) == Path("from-variable")
    assert runs_folder(file, Path("given")) == Path("given")
    assert reports_folder(Path("given")) == Path("pages")
    assert reports_folder(Path("given"), Path("mine")) == Path("mine")
