"""A path from one recipe of a plugin to another, trained by the real command, and its report."""

import json

import pytest
import yaml

from headtohead.analysis.shapley import analyse_path
from headtohead.storage.frames import load_frames

PLUGIN = '''
import headtohead


class Blind(headtohead.Recipe):
    """No positions at all."""

    config = {"positional": "none", "train": {"lr": 1e-3}, "model": {"d_model": 99}}


class Tied(headtohead.Recipe):
    """One table for both sides."""

    config = {
        "positional": "none",
        "data": {"vocabulary": {"shared": True}},
        "model": {"tie_embeddings": "all"},
        "train": {"lr": 1e-2},
    }


@headtohead.hookimpl
def register_recipes():
    return {"blind": Blind, "tied": Tied}
'''

PATH_EXPERIMENT = {
    "question": "What accounts for the distance?",
    "base": {
        "data": {"dataset": "toy-grammar", "size": 200},
        "model": {"d_model": 8, "heads": 2, "layers": 1, "d_ff": 16, "dropout": 0},
        "train": {"steps": 8, "batch_tokens": 128, "evaluate_every": 8},
        "evaluate": {"unpadded": False, "decode": "none"},
    },
    "design": [{"path": {"from": "recipe/blind", "to": "recipe/tied"}}],
    "seeds": 2,
    "metrics": {"primary": "test/token_accuracy", "report": ["valid/loss"]},
}


RUN_PATH = ("run", "walk.yaml", "--plugin", "ends.py", "--runs", "runs", "--no-tracking")


@pytest.fixture(scope="module")
def trained_path(tmp_path_factory, cache, h2h_here):
    """Run the whole path once; return the folder and the output of the command."""
    folder = tmp_path_factory.mktemp("trained_path")
    (folder / "ends.py").write_text(PLUGIN)
    (folder / "walk.yaml").write_text(yaml.safe_dump(PATH_EXPERIMENT, sort_keys=False))
    done = h2h_here(folder, *RUN_PATH, H2H_CACHE=str(cache))
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


@pytest.mark.slow
def test_every_coalition_between_two_recipes_is_trained_and_answered_in_one_sentence(trained_path):
    folder, printed = trained_path
    record = json.loads((folder / "runs" / "walk" / "experiment.json").read_text())
    assert [choice["name"] for choice in record["path"]["choices"]] == [
        "data.vocabulary.shared",
        "model.tie_embeddings",
        "train.lr",
    ]
    assert len(record["path"]["permutations"]) == 6
    frames = load_frames(folder / "runs" / "walk")
    assert set(frames.runs["state"]) == {"DONE"}
    assert len(frames.runs) == 2 * len(record["variants"])
    (sentence,) = [line for line in printed.splitlines() if "blind" in line and "tied" in line]
    assert sentence.endswith(".")


@pytest.mark.slow
def test_shapley_values_of_trained_runs_add_up_to_the_trained_difference(trained_path):
    folder, _ = trained_path
    found = analyse_path(load_frames(folder / "runs" / "walk"), "test/token_accuracy")
    assert found.names == ("blind", "tied")
    assert all(value.known for value in found.values)
    total = sum(value.mean for value in found.values)
    assert total == pytest.approx(found.total.paired.mean, abs=1e-12)


@pytest.mark.slow
def test_the_report_of_the_command_names_inseparable_choices(trained_path):
    folder, _ = trained_path
    text = (folder / "reports" / "walk" / "report.md").read_text(encoding="utf-8").replace("\\", "")
    assert "## Choice by choice" in text
    assert (
        "model.tie_embeddings is incompatible when applied alone to blind: tie_embeddings 'all' requires one vocabulary"
        in text
    )
    assert "data.vocabulary.shared and model.tie_embeddings were applied as a group in 2 of 6 permutations" in text
    assert (folder / "reports" / "walk" / "figures" / "waterfall.svg").is_file()


@pytest.mark.slow
def test_the_same_command_trains_no_further_run(trained_path, cache, h2h_here):
    folder, _ = trained_path
    done = h2h_here(folder, "plan", *RUN_PATH[1:-1], H2H_CACHE=str(cache))
    assert done.returncode == 0, done.stderr
    assert "nothing to run" in done.stdout
    assert "path: blind to tied, 3 choices, 6 permutations" in done.stdout
