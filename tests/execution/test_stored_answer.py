"""A repeated command on a finished study prints its stored answer; any change of a file that it read prevents that."""

import sys

import pytest

from headtohead.data import call_in_child

COMMANDS = {"run": ("run", "tiny.yaml", "--no-tracking"), "plan": ("plan", "tiny.yaml")}


def computed(study, command, monkeypatch):
    """Run a command; return its output and whether it computed a plan."""
    from headtohead.planning import planner

    plans = []
    make_plan = planner.make_plan
    for module in ("headtohead.planning.planner", "headtohead.api"):
        monkeypatch.setattr(
            sys.modules[module], "make_plan", lambda *a, **k: plans.append(a) or make_plan(*a, **k)
        )
    output = study.h2h(*COMMANDS[command]).stdout
    monkeypatch.undo()
    return output, bool(plans)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_repeated_command_on_a_finished_study_plans_nothing(finished, command, monkeypatch):
    computed(finished, command, monkeypatch)
    first, _ = computed(finished, command, monkeypatch)
    assert computed(finished, command, monkeypatch) == (first, False)
    if command == "plan":
        assert finished.h2h("plan", "tiny.yaml", "--seeds", "3").stdout != first
    else:
        page = finished.folder / "reports" / "tiny" / "index.html"
        page.unlink()
        assert computed(finished, "run", monkeypatch)[1]
        assert page.is_file()
        weights = finished.directories()[0] / "checkpoint.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1] + b"x")
        assert "checkpoint" in finished.run("--repair").stdout


def test_data_that_a_child_process_reads_have_no_stored_answer(finished, monkeypatch):
    from headtohead.planning import planner

    make_plan = planner.make_plan
    monkeypatch.setattr(
        planner,
        "make_plan",
        lambda *a, **k: call_in_child("data", "os:getcwd") and make_plan(*a, **k),
    )
    finished.h2h(*COMMANDS["plan"])
    monkeypatch.undo()
    assert computed(finished, "plan", monkeypatch)[1]


def test_a_changed_file_is_noticed_also_behind_a_link(finished, monkeypatch):
    runs = finished.folder / "runs"
    runs.rename(finished.folder / "elsewhere")
    runs.symlink_to(finished.folder / "elsewhere")
    run = finished.directories()[0]
    changes = [
        lambda: finished.file.write_text(finished.file.read_text() + "# a comment\n"),
        (run / "results.json").touch,
        (run / "status.json").touch,
        (run / "checkpoint.safetensors").unlink,
    ]
    computed(finished, "plan", monkeypatch)
    for change in changes:
        assert not computed(finished, "plan", monkeypatch)[1]
        change()
        assert computed(finished, "plan", monkeypatch)[1], change


def test_an_unfinished_study_has_no_stored_answer(study, monkeypatch):
    for _ in range(2):
        assert computed(study, "plan", monkeypatch)[1]
