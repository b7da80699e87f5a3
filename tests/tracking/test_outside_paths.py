"""Records of untrusted studies contain paths: no path is followed out of its folder."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from headtohead.errors import HeadToHeadError
from headtohead.storage.paths import checked_path
from made import case_table
from made.fake_study import edit

MakeExperiment = Callable[..., Path]
Command = Callable[..., CompletedProcess[str]]
AXES = {"positional": ["rotary", "none"]}
SECRET = "the content of a file outside the study"


@pytest.fixture
def folder(make_experiment: MakeExperiment) -> Path:
    return make_experiment(axes=AXES, maps=True)


@pytest.fixture
def outside(folder: Path, tmp_path: Path) -> Path:
    """A copy of a run outside the runs folder, with files that must not change."""
    run = next(folder.glob("*-s1-*"))
    outside_run = tmp_path / "outside"
    shutil.copytree(run, outside_run)
    (outside_run / "figures").mkdir()
    (outside_run / "figures" / "kept.svg").write_text(SECRET)
    (outside_run / "translations.tsv").write_text(
        f"source\treferences\thypothesis\texact\n{SECRET}\tb\tc\t1\n"
    )
    return outside_run


def content(outside_run: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(outside_run)): path.read_bytes()
        for path in sorted(outside_run.rglob("*"))
        if path.is_file()
    }


def holds_secret(outside_run: Path) -> list[str]:
    return [name for name, data in content(outside_run).items() if SECRET.encode() in data]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        *(("report", name) for name in ("../../outside", "{outside}", "", 7)),
        pytest.param("status", "../../outside", marks=pytest.mark.slow),
        pytest.param("sync", "../../outside", marks=pytest.mark.slow),
    ],
)
def test_an_invalid_folder_name_is_refused_and_nothing_is_written_or_deleted(
    folder: Path,
    outside: Path,
    tmp_path: Path,
    store_uri: str,
    h2h_here: Command,
    command: str,
    name: object,
) -> None:
    name = str(outside) if name == "{outside}" else name
    edit(folder, name=name)
    before = content(outside), content(tmp_path / "runs")
    (tmp_path / "project" / "reports").mkdir(parents=True)
    reports = () if command == "status" else ("--reports", str(tmp_path / "project" / "reports"))
    done = h2h_here(tmp_path, command, "quickstart", *reports)
    assert done.returncode == 2
    reason = (
        f"{name!r} is not a valid folder name"
        if isinstance(name, str)
        else "name: Input should be a valid string"
    )
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert (content(outside), content(tmp_path / "runs")) == before
    assert content(tmp_path / "project") == {}


OUTSIDE = [
    ("directory", "../../outside"),
    ("reused_from", "../outside"),
    ("directory", "{outside}"),
]


@case_table(
    ("command", "changes"),
    [
        *(("report", {field: value}) for field, value in OUTSIDE),
        *((command, dict(OUTSIDE[:1])) for command in ("status", "sync", "ablate-heads")),
    ],
    default=3,
)
def test_a_run_outside_the_runs_folder_is_refused(
    folder: Path,
    outside: Path,
    tmp_path: Path,
    store_uri: str,
    h2h_here: Command,
    command: str,
    changes: dict[str, str],
) -> None:
    changes = {field: value.format(outside=outside) for field, value in changes.items()}
    plan = json.loads((folder / "experiment.json").read_text())
    plan["runs"][0] |= changes
    (folder / "experiment.json").write_text(json.dumps(plan))
    before = content(outside)
    done = h2h_here(tmp_path, command, "quickstart")
    assert done.returncode == 2
    (value,) = changes.values()
    assert f"'{value}' is not a path inside" in done.stderr
    assert content(outside) == before
    assert holds_secret(tmp_path / "mlruns-artifacts") == []


@case_table("name", ["translations.tsv", "attention", "attention/probes.json", ""], default=1)
def test_sync_and_report_follow_no_symbolic_link_in_a_run(
    folder: Path, outside: Path, tmp_path: Path, store_uri: str, h2h_here: Command, name: str
) -> None:
    (outside / "attention" / "notes.txt").write_text(SECRET)
    run = next(folder.glob("*-s1-*"))
    target = run / name
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    secret = outside / "translations.tsv" if name.endswith(".json") else outside / name
    target.symlink_to(secret)
    shipped = h2h_here(tmp_path, "sync", "quickstart")
    assert shipped.returncode == (2 if name == "" else 1), shipped.stderr
    message = f"'{target.relative_to(tmp_path)}' is a symbolic link"
    assert message in shipped.stderr
    assert holds_secret(tmp_path / "mlruns-artifacts") == []
    reported = h2h_here(tmp_path, "report", "quickstart")
    assert reported.returncode == 2
    assert message in reported.stderr


@pytest.mark.slow
def test_a_report_folder_that_is_a_link_is_refused(
    folder: Path, outside: Path, tmp_path: Path, store_uri: str, h2h_here: Command
) -> None:
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "quickstart").symlink_to(outside)
    before = content(outside)
    assert h2h_here(tmp_path, "report", "quickstart").returncode == 2
    assert h2h_here(tmp_path, "sync", "quickstart").returncode == 2
    assert content(outside) == before
    assert holds_secret(tmp_path / "mlruns-artifacts") == []


@pytest.mark.parametrize(
    "name", ["..", "a/../b", "/etc", "//etc", "", ".", "a\0b", None, 3, ["a"], "./.."]
)
def test_names_that_leave_a_folder_are_refused(tmp_path: Path, name: object) -> None:
    with pytest.raises(HeadToHeadError, match="is not a path inside"):
        checked_path(tmp_path, name)


def test_links_are_refused_only_below_the_root(tmp_path: Path) -> None:
    real = tmp_path / "real" / "a" / "b"
    real.mkdir(parents=True)
    root = tmp_path / "root"
    root.symlink_to(tmp_path / "real")
    assert checked_path(root, "a/b", tree=True) == root / "a" / "b"
    assert checked_path(root, "a", "not yet", tree=True) == root / "a" / "not yet"
    (real / "link").symlink_to("nowhere")
    assert checked_path(root, "a") == root / "a"
    for call in (
        lambda: checked_path(root, "a/b/link"),
        lambda: checked_path(root, "a", tree=True),
        lambda: checked_path(root, tree=True),
    ):
        with pytest.raises(HeadToHeadError, match=r"b/link' is a symbolic link"):
            call()
