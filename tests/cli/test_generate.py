"""h2h generate on trained runs."""

import pytest

from headtohead import files
from headtohead.execution.loaded import load
from made.study import Study

SENTENCES = ["the cat sees a dog", "she eats", "the black dogs love it"]


@pytest.fixture(scope="module")
def study(tmp_path_factory, h2h_here, no_figures):
    folder = tmp_path_factory.mktemp("translate")
    made = Study(folder, folder / "cache", h2h_here)
    base = {
        "data": {"size": 300},
        "model": {"d_model": 16, "dropout": 0.0},
        "train": {"steps": 40, "batch_tokens": 256, "lr": 0.01, "evaluate_every": 40},
        "evaluate": {"test_limit": 8, "max_length": 9},
    }
    design = [{"one_at_a_time": {"evaluate.decode": ["non-autoregressive"]}}]
    made.write(
        base=base,
        baseline={"evaluate.decode": "greedy"},
        design=design,
        seeds=1,
        probes=["a cat sees the dog"],
    )
    with no_figures():
        made.run()
    return made


@pytest.fixture
def run_of(study, monkeypatch):
    monkeypatch.setenv("H2H_CACHE", str(study.cache))

    def find(decode):
        (found,) = study.experiment.glob(f"*{decode}*-s1-*")
        return found

    return find


def hypotheses(path):
    rows = (path / "translations.tsv").read_text("utf-8").splitlines()[1:]
    return [row.split("\t")[2] for row in rows]


def test_results_record_the_decoding(run_of):
    decodings = ("greedy", "non-autoregressive")
    assert [
        files.read_json(run_of(decode) / "results.json")["decoding"] for decode in decodings
    ] == [
        {"decode": "greedy", "max_length": 9},
        {"decode": "non-autoregressive"},
    ]


def test_a_run_is_scored_on_its_own_translations(study, run_of):
    greedy = run_of("greedy")
    rows = (greedy / "translations.tsv").read_text("utf-8").splitlines()[1:]
    sources = [row.split("\t")[0] for row in rows]
    assert load(greedy).translate(sources) == hypotheses(greedy)
    printed = study.h2h("generate", str(greedy), *SENTENCES).stdout
    assert printed.splitlines() == load(greedy).translate(SENTENCES)


def test_maps_without_a_target_use_the_translation_of_the_run(run_of):
    loaded = load(run_of("greedy"))
    maps = loaded.attention("the cat sees a dog")
    written = loaded.translate(["the cat sees a dog"])[0].split()
    assert maps.record["target_tokens"][1:] == written
