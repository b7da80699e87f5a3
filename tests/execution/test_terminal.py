"""On a terminal, the commands on trained runs fit its width, and runs that diverge or fail are printed at once."""

import shutil
from collections.abc import Callable

import pytest

from headtohead.cli import main
from headtohead.execution import progress, worker
from headtohead.execution.progress import Watcher
from headtohead.storage.stack import StackFolder, stack_folders
from made import separate_registry
from made.fake_study import edit
from made.study import Study, on_evaluation
from made.terminal import in_terminal, plain, too_wide

RATE = "train.lr"
WAITS = on_evaluation(
    """import time
deadline = time.monotonic() + 60
while step == 40 and not (run.parents[2] / "printed").exists() and time.monotonic() < deadline:
    time.sleep(0.01)
"""
)
"""A plugin that delays the second evaluation of the runs in training until the test has seen a line."""


@pytest.fixture
def shown(finished: Study, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return what a command on the finished study prints to a terminal of a width."""
    monkeypatch.chdir(finished.folder)

    def show(columns: int, *arguments: str) -> str:
        with separate_registry():
            return in_terminal(columns, lambda: main(list(arguments), prog_name="h2h"))

    return show


@pytest.mark.parametrize("columns", [80, 120])
def test_commands_on_trained_runs_fit_the_terminal(
    columns: int, finished: Study, shown: Callable[..., str]
) -> None:
    run = finished.directories()[0].name
    commands = [["show", run], ["report", "tiny"], ["run", "tiny.yaml", "--no-tracking"]]
    for arguments in commands:
        text = shown(columns, *arguments)
        assert len(text) > 80
        assert too_wide(text, columns) == []
    assert "\x1b[32mDONE\x1b[0m" in shown(columns, "show", run)


@pytest.mark.parametrize("state", ["DIVERGED", "FAILED", "OOM", "TIMEOUT"])
def test_a_run_that_ends_early_is_printed_once_while_its_stack_goes_on(
    state: str, finished: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "POLL_SECONDS", 0.0)
    first, second = finished.directories()

    def watch() -> None:
        watcher = Watcher(stack_folders(finished.experiment), allow_bar=False)
        watcher.tick()
        for run in (first, second):
            edit(run / "status.json", state=state, reason="no finite loss")
        watcher.tick()
        watcher.tick()

    text = in_terminal(80, watch)
    _, *lines = plain(text).splitlines()
    assert lines == [f"{state}: baseline, seeds 1, 2: no finite loss"]
    assert f"\x1b[31m{state}\x1b[0m" in text


@pytest.mark.parametrize("allow_bar", [True, False])
@pytest.mark.parametrize("name", ["stack.json", "status.json"])
def test_a_damaged_record_does_not_end_the_display(
    name: str, allow_bar: bool, finished: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    (folder,) = stack_folders(finished.experiment)
    other = StackFolder(shutil.copytree(folder.path, folder.path.parent / "other"))
    edit(other.path / "progress.json", step=3, steps=9)
    other.change(members=other.record.members[:1])
    damaged = folder.path if name == "stack.json" else finished.directories()[1]

    def watch() -> None:
        watcher = Watcher([folder, other], allow_bar=allow_bar)
        (damaged / name).write_text("{")
        watcher.tick()
        watcher.close()

    text = plain(in_terminal(80, watch))
    assert "training 0 runs in 2 stacks" in text
    assert ("66%" if allow_bar else "step 3 of 9") in text


def test_lines_of_progress_have_phrases_and_fit_80_columns(
    finished: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    title = "without positions, learning rate 0.004, 16 heads"
    for run in finished.directories():
        edit(run / "run.json", title=title)
    (folder,) = stack_folders(finished.experiment)
    edit(folder.path / "progress.json", step=1000, steps=20_000, loss=2.345)
    first, second = folder.record.members
    folder.change(members=(first, second.model_copy(update={"variant": "other"})))

    def watch() -> None:
        watcher = Watcher([folder], allow_bar=False)
        watcher.tick()
        watcher.ended(folder, 0)

    _, step, end = plain(in_terminal(200, watch)).splitlines()[:3]
    for line, text in (
        (step, ": step 1,000 of 20,000, loss 2.345 (0 s)"),
        (end, ", loss 2.345 (0 s)"),
    ):
        assert len(line) <= 80
        assert line.removeprefix("[1/1] ").startswith("without positions, … and 1 more: ")
        assert line.endswith(text)


def test_long_lines_of_progress_omit_what_all_stacks_share(
    finished: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    for run, rate in zip(finished.directories(), (0.004, 0.008), strict=True):
        edit(run / "run.json", title=f"without positions, learning rate {rate}, 16 heads")
    (folder,) = stack_folders(finished.experiment)
    edit(folder.path / "progress.json", step=1000, steps=20_000, loss=2.345)
    other = StackFolder(shutil.copytree(folder.path, folder.path.parent / "other"))
    first, second = folder.record.members
    folder.change(members=(first,))
    other.change(members=(second,))
    watch = Watcher([folder, other], allow_bar=False).tick
    lines = sorted(plain(in_terminal(200, watch)).splitlines())
    assert lines == [
        f"learning rate {rate}: step 1,000 of 20,000, loss 2.345 (0 s)" for rate in (0.004, 0.008)
    ]


def test_a_stack_that_has_not_started_is_not_read(
    finished: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "POLL_SECONDS", 0.0)
    edit(finished.directories()[0] / "status.json", state="DIVERGED", reason="of an earlier try")
    (folder,) = stack_folders(finished.experiment)
    (folder.path / "progress.json").unlink()
    text = in_terminal(80, Watcher([folder], allow_bar=False).tick)
    assert "DIVERGED" not in text


def test_a_diverging_variant_is_printed_before_its_stack_ends(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    print_line = Watcher.print

    def print_and_release(watcher: Watcher, line: str) -> None:
        print_line(watcher, line)
        if line.startswith("DIVERGED: "):
            (study.folder / "printed").touch()

    monkeypatch.setattr(Watcher, "print", print_and_release)
    study.write(design=[{"one_at_a_time": {RATE: [1.0e6]}}], seeds=1, plugin=WAITS)
    lines = study.run("--no-report").stderr.splitlines()
    (number,) = [n for n, line in enumerate(lines) if line.startswith("DIVERGED: ")]
    (end,) = [n for n, line in enumerate(lines) if line.startswith("[1/1]")]
    assert lines[number].startswith("DIVERGED: learning rate 1000000, seed 1: ")
    assert number < end


def test_the_inline_launcher_prints_a_diverging_variant_before_its_stack_ends(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(worker, "PROGRESS_SECONDS", 0.0)
    study.write(design=[{"one_at_a_time": {RATE: [1.0e6]}}], seeds=1)
    ran = study.h2h("run", "tiny.yaml", "--launcher", "inline", "--no-tracking", "--no-report")
    lines = ran.stderr.splitlines()
    (number,) = [n for n, line in enumerate(lines) if line.startswith("DIVERGED: ")]
    (end,) = [n for n, line in enumerate(lines) if line.startswith("[1/1]")]
    assert lines[number].startswith("DIVERGED: learning rate 1000000, seed 1: ")
    assert number < end
