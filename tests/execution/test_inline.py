"""``h2h run --launcher inline`` and ``--only``: training in this process, and some variants of a study."""

import os
import re

import pytest

from headtohead.cli.run import start_server
from headtohead.execution.local import LocalLauncher
from made.study import Study, on_evaluation

RAISES = on_evaluation(
    "import os\nif 'rotary' in str(run): raise ZeroDivisionError(f'in process {os.getpid()}')"
)


def test_the_inline_launcher_trains_in_this_process_and_shows_the_traceback_of_a_plugin(
    study: Study,
) -> None:
    design = [{"one_at_a_time": {"positional": ["rotary"]}}]
    study.write(plugin=RAISES, base={"train": {"steps": 2}}, seeds=1, design=design)
    failed = study.h2h(
        "run", "tiny.yaml", "--launcher", "inline", "--no-tracking", "--no-report", code=1
    )
    assert f"ZeroDivisionError: in process {os.getpid()} (mine.py:" in failed.stdout
    assert re.search(r'File ".*mine.py", line \d+, in on_evaluation', failed.stderr)
    assert [*study.states().values()] == ["FAILED", "DONE"]


@pytest.mark.slow
def test_only_trains_some_variants_and_the_report_waits_for_the_others(study: Study) -> None:
    study.write(
        base={"train": {"steps": 4}, "evaluate": {"decode": "none"}},
        metrics={"primary": "test/token_accuracy", "report": []},
        design=[{"one_at_a_time": {"positional": ["rotary", "none"]}}],
    )
    first = study.run("--only", "rotary")
    assert "2 variants are left out by --only" in first.stdout
    assert [path.name.partition("-")[0] for path in study.directories()] == ["rotary"] * 2
    assert not (study.folder / "reports").exists()
    second = study.run("--no-report")
    assert "training 4 runs" in second.stderr
    assert not (study.folder / "reports").exists()
    study.run("--only", "none")
    assert study.page()


REFUSED = (
    ("--only", "rotery"),
    ("--only", "rotary", "--fresh"),
    ("--stale", "--fresh"),
    ("--no-report", "--allow-partial"),
)


@pytest.mark.parametrize("options", REFUSED, ids=" ".join)
def test_contradictory_options_are_one_line(study: Study, options: tuple[str, ...]) -> None:
    study.write()
    (line,) = study.h2h("run", "tiny.yaml", *options, code=2).stderr.splitlines()
    assert re.match(
        rf"h2h: ({'|'.join(option for option in options if option.startswith('--'))}) ", line
    )


WARMED = '''
from pathlib import Path
from headtohead.plugin import InlineLauncher, hookimpl

class Own(InlineLauncher):
    """Trains in this process, and notes that its processes are to be started."""

    def warm(self):
        with Path("warmed").open("a") as file:
            file.write("x")

@hookimpl
def register_launchers():
    return {"own": Own}
'''


def test_a_finished_study_starts_no_processes(study: Study) -> None:
    study.write(plugin=WARMED, base={"train": {"steps": 2}}, seeds=1)
    options = ("run", "tiny.yaml", "--launcher", "own", "--no-tracking", "--no-report")
    for warmed, flags in (("x", ()), ("x", ()), ("xx", ("--fresh",))):
        study.h2h(*options, *flags)
        assert (study.folder / "warmed").read_text() == warmed


def test_the_command_starts_its_server_first_unless_the_study_is_finished(
    finished: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[str] = []
    monkeypatch.setattr(LocalLauncher, "warm", lambda self: starts.append("server"))
    options = {"launcher": "local", "runs": finished.runs}
    options |= dict.fromkeys(("fresh", "stale", "repair"), False)
    start_server("tiny", options)
    start_server("tiny", options | {"fresh": True, "launcher": "inline"})
    assert starts == []
    start_server("tiny", options | {"fresh": True})
    assert len(starts) == 1
    (run, *_) = finished.experiment.glob("*/status.json")
    run.unlink()
    start_server("tiny", options)
    assert len(starts) == 2
