import json
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest

from headtohead.storage.leases import Lease
from headtohead.storage.progress import find_experiment, read_progress
from headtohead.storage.stack import StackFolder, StackMember, StackRecord
from headtohead.testing.tiny import tiny_config
from made import refused


@pytest.fixture
def study(tmp_path, bare_experiment):
    """An experiment of one variant, with a status of its run and the progress of its stack."""

    def study(status=None, **progress):
        folder, directory = tmp_path / "runs" / "study", "v-s1-00000000"
        (folder / directory).mkdir(parents=True)
        if status is not None:
            (folder / directory / "status.json").write_text(json.dumps(status))
            leases.enter_context(Lease(folder / directory))
        if progress:
            stack = StackFolder(folder / ".stacks" / "1")
            member = StackMember(variant="v", run_hash="0", seed=1, directory=directory)
            stack.write(StackRecord(configs={"v": tiny_config()}, members=(member,)))
            stack.write_progress(**progress)
        (folder / "experiment.json").write_text(bare_experiment("study", "q", {"v": None}, [("v", 1, directory)]))
        return folder

    with ExitStack() as leases:
        yield study


@pytest.mark.parametrize(("state", "step", "left"), [("RUNNING", 20, 160.0), ("DONE", 5, None), ("OOM", 20, None)])
def test_the_remaining_time_of_a_training_run_follows_from_the_progress_of_its_stack(study, state, step, left):
    (run,) = read_progress(study({"state": state, "step": 5}, step=20, steps=100, seconds=40.0)).runs
    assert (run.state, run.step, run.seconds_left) == (state, step, left)


def test_an_experiment_is_found_by_file_name_or_folder(study, tmp_path):
    folder, root = study(), tmp_path / "runs"
    for named in (Path("experiments/study.yaml"), Path("study"), folder):
        assert find_experiment(named, root) == folder
    copied = shutil.copytree(folder, tmp_path / "copy" / folder.name)  # also beside another of the same name
    assert find_experiment(copied, root) == copied


def test_a_file_without_runs_leads_to_run(study, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("other.yaml").touch()
    message = f"no runs of 'other' in '{tmp_path / 'runs'}'; start with h2h run other.yaml"
    assert refused(find_experiment, Path("other.yaml"), tmp_path / "runs") == message
