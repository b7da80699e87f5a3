import json
import shutil
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from headtohead.errors import HeadToHeadError
from headtohead.storage.leases import Lease
from headtohead.storage.progress import find_experiment, read_progress


@pytest.fixture
def study(tmp_path, bare_experiment):
    """An experiment of one variant with the given runs by seed: status and metric lines.

    Runs with state RUNNING are leased by this process unless they are ``gone``.
    """

    def study(runs, name="study", gone=False):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        planned = []
        for seed, (status, lines) in runs.items():
            directory = f"v-s{seed}-00000000"
            planned.append(("v", seed, directory))
            (folder / directory).mkdir()
            if status is not None:
                (folder / directory / "status.json").write_text(json.dumps(status))
                if status["state"] == "RUNNING" and not gone:
                    leases.enter_context(Lease(folder / directory))
            (folder / directory / "metrics.jsonl").write_text("".join(lines))
        (folder / "experiment.json").write_text(bare_experiment(name, "q", {"v": None}, planned))
        return folder

    with ExitStack() as leases:
        yield study


def line(step, moment):
    return json.dumps({"step": step, "time": moment, "values": {}}) + "\n"


def test_the_remaining_time_follows_from_the_last_lines(study):
    status = {"state": "RUNNING", "step": 5, "steps": 100}
    (run,) = read_progress(study({1: (status, [line(10, 50.0), line(20, 70.0)])})).runs
    assert (run.step, run.steps) == (20, 100)
    assert run.seconds_left == pytest.approx(160.0)


def test_with_fewer_than_two_lines_the_remaining_time_follows_from_the_start(study):
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 100))
    status = {"state": "RUNNING", "step": 50, "steps": 100, "started": started}
    (run,) = read_progress(study({1: (status, [])})).runs
    assert run.seconds_left == pytest.approx(100.0, abs=5.0)


def test_a_run_that_does_not_train_has_no_remaining_time(study):
    status = {"state": "DONE", "step": 100, "steps": 100}
    (run,) = read_progress(study({1: (status, [line(1, 1.0), line(100, 9.0)])})).runs
    assert (run.state, run.seconds_left) == ("DONE", None)


def test_an_experiment_is_found_by_file_name_or_folder(study, tmp_path):
    folder, root = study({1: (None, [])}), tmp_path / "runs"
    for named in (Path("experiments/study.yaml"), Path("study"), folder):
        assert find_experiment(named, root) == folder
    copied = shutil.copytree(folder, tmp_path / "copy" / folder.name)  # also beside another of the same name
    assert find_experiment(copied, root) == copied


def test_a_file_without_runs_leads_to_run(study, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("other.yaml").touch()
    with pytest.raises(HeadToHeadError) as caught:
        find_experiment(Path("other.yaml"), tmp_path / "runs")
    assert str(caught.value) == f"no runs of 'other' in '{tmp_path / 'runs'}'; start with h2h run other.yaml"
