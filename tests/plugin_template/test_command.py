"""``h2h new-plugin`` writes a package and prints the next commands, or an error in one line."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from headtohead.cli import main

REFUSED = [
    (["positionl", "my-idea"], "'positional'"),
    (["recipe", "my-idea"], "'recipe'"),
    (["positional", "MyIdea"], "'my-idea'"),
    (["positional", "../x"], "'my-idea'"),
    (["positional", ""], "'my-idea'"),
    (["positional", "alibi"], "headtohead_plugins.positional.alibi"),
    (["masking", "there"], "'there' already exists"),
    (["masking", "new", "--folder", "file/new"], "Not a directory"),
]


@pytest.mark.parametrize(("arguments", "named"), REFUSED)
def test_invalid_input_is_an_error_in_one_line_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    (tmp_path / "file").write_text("", "utf-8")
    done = CliRunner().invoke(main, ["new-plugin", *arguments])
    assert (done.exit_code, done.stderr.count("\n"), done.stdout) == (2, 1, "")
    assert named in done.stderr
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "there"]


def test_written_files_and_next_commands_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["new-plugin", "positional", "my-idea"])
    assert done.exit_code == 0, done.stderr
    files = [
        "h2h_my_idea.py",
        "test_h2h_my_idea.py",
        "pyproject.toml",
        "README.md",
        "experiment.yaml",
    ]
    assert done.stdout.splitlines() == [
        *(f"wrote my-idea/{name}" for name in files),
        "",
        "next:",
        "  cd my-idea",
        "  pip install -e '.[test]'",
        "  pytest",
    ]
    assert {path.name for path in (tmp_path / "my-idea").iterdir()} == set(files)
