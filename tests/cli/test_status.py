import json

import pytest

from headtohead.storage.leases import Lease
from made.fake_study import experiment_text


@pytest.fixture
def study(tmp_path):
    states = {
        ("a", 1): {"state": "DONE", "step": 9, "steps": 9},
        ("a", 2): {"state": "FAILED", "step": 4, "steps": 9, "reason": "ValueError: no"},
        ("b", 1): {"state": "RUNNING", "step": 3, "steps": 9},
        ("b", 2): {"state": "RUNNING", "step": 3, "steps": 9},
    }
    folder = tmp_path / "runs" / "study"
    runs = []
    for (variant, seed), status in states.items():
        directory = f"{variant}-s{seed}-00000000"
        (folder / directory).mkdir(parents=True)
        (folder / directory / "status.json").write_text(json.dumps(status))
        runs.append((variant, seed, directory))
    equal = {"a": None, "b": None, "c": "a"}
    (folder / "experiment.json").write_text(experiment_text("study", equal, runs))
    with Lease(folder / "b-s1-00000000"):
        yield


def test_every_run_is_shown_with_its_state(study, h2h):
    code, output = h2h("status", "study")
    lines = [" ".join(line.split()) for line in output.splitlines()]
    assert code == 0
    assert lines[0] == "study: Which?"
    assert lines[1] == "4 runs: 1 DONE, 1 FAILED, 1 RUNNING, 1 INTERRUPTED"
    assert "variant seeds DONE seeds FAILED seeds RUNNING seeds INTERRUPTED" in lines
    assert "a 1 2" in lines
    assert "b 1 (step 3 of 9) 2" in lines
    assert "c = a by construction" in lines
    assert "a-s2-00000000 FAILED at step 4: ValueError: no" in lines
    assert "b-s2-00000000 INTERRUPTED at step 3" in lines

    records = json.loads(h2h("status", "study", "--format", "json")[1])["runs"]
    assert [record["state"] for record in records] == ["DONE", "FAILED", "RUNNING", "INTERRUPTED"]


@pytest.mark.parametrize(
    "words",
    [["show", "{}"], ["generate", "{}", "a b"], ["export", "{}", "out"], ["reproduce", "{}"]],
    ids=" ".join,
)
@pytest.mark.parametrize("given", ["study", "study.yaml"])
def test_commands_that_take_a_run_recognise_an_experiment(study, h2h, words, given):
    line = f"h2h: no run '{given}' in 'runs'; it is an experiment, and h2h status {given} lists its runs\n"
    assert h2h(*(word.format(given) for word in words)) == (2, line)
