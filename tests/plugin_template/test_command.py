"""``h2h new-plugin`` writes a package and prints the next commands, or an error in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from headtohead.cli import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["positionl", "my-idea"], "unknown family 'positionl'; did you mean 'positional'?"),
        (["recipe", "my-idea"], "unknown family 'recipe'; known: attention, dataset, masking, positional"),
        (
            ["positional", "MyIdea"],
            "'MyIdea' is not a valid plugin name; use lower-case letters, digits and single hyphens, such as 'my-idea'",
        ),
        (
            ["positional", "alibi"],
            "positional 'alibi' is already registered by headtohead_plugins.positional.alibi "
            "(headtohead); choose another name",
        ),
        (
            ["dataset", "tatoeba"],
            "dataset 'tatoeba' is already registered by headtohead_plugins.datasets.tatoeba "
            "(headtohead); choose another name",
        ),
        (["masking", "there"], "'there' already exists; choose another name or --folder"),
        (["masking", "new", "--folder", "there"], "'there' already exists; choose another name or --folder"),
        (["masking", "new", "--folder", "file/new"], "cannot write 'file/new': Not a directory"),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, list) else "",
)
def test_invalid_input_is_an_error_in_one_line_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    (tmp_path / "file").write_text("", "utf-8")
    done = CliRunner().invoke(main, ["new-plugin", *arguments])
    assert done.exit_code == 2
    assert done.stderr == f"h2h: {message}\n"
    assert done.stdout == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "there"]
    assert list((tmp_path / "there").iterdir()) == []


def test_written_files_and_next_commands_are_printed(h2h, tmp_path: Path) -> None:
    done = h2h("new-plugin", "positional", "my-idea")
    assert done.returncode == 0, done.stderr
    files = ["h2h_my_idea.py", "test_h2h_my_idea.py", "pyproject.toml", "README.md", "experiment.yaml"]
    assert done.stdout.splitlines() == [
        *(f"wrote my-idea/{name}" for name in files),
        "",
        "next:",
        "  cd my-idea",
        "  pip install -e '.[test]'",
        "  pytest",
    ]
    assert {path.name for path in (tmp_path / "my-idea").iterdir()} == set(files)
