"""A run translates with the maximum length of its evaluation in every command."""

from __future__ import annotations

import json

import pytest
import yaml

from headtohead.data import prepare
from headtohead.execution.head_ablation import masked_heads
from headtohead.execution.loaded import load

STUDY = {
    "question": "How long are translations?",
    "base": {
        "data": {
            "dataset": "reverse",
            "split": "length",
            "longest": 4,
            "size": 200,
            "test_each": 3,
            "options": {"alphabet": 4},
        },
        "model": {"d_model": 8, "heads": 2, "layers": 1, "d_ff": 16, "dropout": 0.0},
        "train": {"steps": 10, "batch_tokens": 128, "lr": 0.05},
        "evaluate": {"unpadded": False},
    },
    "seeds": 1,
    "probes": ["4 3 2 1"],
}


@pytest.fixture(scope="module")
def path(tmp_path_factory, h2h_here, no_figures):
    made = tmp_path_factory.mktemp("limit")
    (made / "study.yaml").write_text(yaml.safe_dump(STUDY, sort_keys=False))
    with no_figures():
        done = h2h_here(made, "run", "study.yaml", "--no-tracking", H2H_CACHE=str(made / "cache"))
    assert done.returncode == 0, done.stdout + done.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("H2H_CACHE", str(made / "cache"))
        yield next(made.glob("runs/study/*-s1-*"))


def test_the_limit_is_one_and_a_half_times_the_longest_training_target_and_eos(path):
    splits = prepare(load(path).config.data, path.parents[2] / "cache").splits
    train, test = (max(len(text.split()) for text in splits[name].target_text) for name in ("train", "test"))
    assert (train, test) == (4, 8)
    limit = (train + 1) * 3 // 2
    assert json.loads((path / "run.json").read_text())["decoding_limit"] == limit == 7
    assert json.loads((path / "results.json").read_text())["decoding"]["max_length"] == limit
    assert load(path).decoding_limit == limit


def test_a_loaded_run_has_the_translations_of_its_evaluation(path):
    rows = [row.split("\t") for row in (path / "translations.tsv").read_text().splitlines()[1:]]
    assert max(len(hypothesis.split()) for _, _, hypothesis, _ in rows) == 7  # the limit matters
    translated = load(path).translate([source for source, *_ in rows])
    assert translated == [hypothesis for _, _, hypothesis, _ in rows]


def test_head_ablation_without_masked_heads_has_the_scores_of_the_run(path):
    scored = json.loads((path / "results.json").read_text())["metrics"]
    whole = masked_heads(path)["whole"]
    for name in ("bleu", "exact_match"):
        assert whole[name] == scored[f"test/{name}"]
