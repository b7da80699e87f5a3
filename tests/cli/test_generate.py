"""h2h generate, greedy and by beam search, on trained runs."""

import json

import pytest
import yaml

from headtohead import HeadToHeadError
from headtohead.execution.loaded import load
from headtohead.schema.run_config import BeamConfig

STUDY = {
    "question": "Does a beam help?",
    "base": {
        "data": {"dataset": "toy-grammar", "size": 300},
        "model": {"d_model": 16, "heads": 2, "layers": 1, "d_ff": 16, "dropout": 0.0},
        "train": {"steps": 40, "batch_tokens": 256, "lr": 0.01, "evaluate_every": 40},
        "evaluate": {"test_limit": 8, "max_length": 9},
    },
    "baseline": {"evaluate.decode": "greedy"},
    "design": [{"one_at_a_time": {"evaluate.decode": ["beam", "non-autoregressive"]}}],
    "seeds": 1,
    "probes": ["a cat sees the dog"],
}
SENTENCES = ["the cat sees a dog", "she eats", "the black dogs love it"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, h2h_here, no_figures):
    made = tmp_path_factory.mktemp("translate")
    (made / "study.yaml").write_text(yaml.safe_dump(STUDY, sort_keys=False))
    with no_figures():
        done = h2h_here(made, "run", "study.yaml", "--no-tracking", H2H_CACHE=str(made / "cache"))
    assert done.returncode == 0, done.stdout + done.stderr
    return made


@pytest.fixture
def run_of(folder, monkeypatch):
    monkeypatch.setenv("H2H_CACHE", str(folder / "cache"))

    def find(decode):
        (found,) = (folder / "runs" / "study").glob(f"*{decode}*-s1-*")
        return found

    return find


@pytest.fixture
def translate(folder, h2h_here):
    def call(*arguments):
        return h2h_here(folder, "generate", *arguments, H2H_CACHE=str(folder / "cache"))

    return call


def hypotheses(path):
    rows = (path / "translations.tsv").read_text("utf-8").splitlines()[1:]
    return [row.split("\t")[2] for row in rows]


def test_results_record_the_decoding(run_of):
    records = [
        json.loads((run_of(decode) / "results.json").read_text("utf-8"))["decoding"]
        for decode in ("greedy", "beam", "non-autoregressive")
    ]
    assert records == [
        {"decode": "greedy", "max_length": 9},
        {"decode": "beam", "max_length": 9, "size": 4, "length_penalty": 0.6},
        {"decode": "non-autoregressive"},
    ]


def test_a_run_is_scored_on_its_beam_search_translations(run_of):
    greedy, beam = run_of("greedy"), run_of("beam")
    sources = [row.split("\t")[0] for row in (beam / "translations.tsv").read_text("utf-8").splitlines()[1:]]
    assert load(beam).translate(sources) == hypotheses(beam)
    assert load(greedy).translate(sources) == hypotheses(greedy)
    # Training does not depend on decoding: both runs have the same beam search translations.
    assert load(greedy).translate(sources, BeamConfig()) == hypotheses(beam)
    assert hypotheses(beam) != hypotheses(greedy)


def test_a_beam_of_one_equals_greedy_decoding(translate, run_of):
    plain = translate(str(run_of("greedy")), *SENTENCES)
    assert plain.returncode == 0, plain.stderr
    single = translate(str(run_of("beam")), "--beam", "1", "--length-penalty", "0", *SENTENCES)
    assert single.stdout == plain.stdout
    wide = translate(str(run_of("greedy")), "--beam", "4", *SENTENCES)
    assert wide.stdout == translate(str(run_of("beam")), *SENTENCES).stdout
    assert len(wide.stdout.splitlines()) == 3


def test_invalid_options_are_one_line(translate, run_of):
    without_beam = translate(str(run_of("greedy")), "--length-penalty", "1", "she eats")
    assert (without_beam.returncode, without_beam.stderr) == (2, "h2h: --length-penalty requires --beam\n")
    zeros = run_of("non-autoregressive")
    over = translate(str(zeros), "--beam", "4", "she eats")
    assert (over.returncode, over.stderr) == (
        2,
        f"h2h: run '{zeros.name}' decodes all words in a single pass (evaluate.decode: "
        "non-autoregressive), which has no beam; remove the beam\n",
    )
    with pytest.raises(HeadToHeadError, match=r"which has no beam"):
        load(zeros).generate([4, 5, 3], BeamConfig())


def test_maps_of_a_run_with_beam_search_use_its_translations(run_of):
    loaded = load(run_of("beam"))
    maps = loaded.attention("the cat sees a dog")
    written = loaded.translate(["the cat sees a dog"])[0].split()
    assert maps.record["target_tokens"][1:] == written
