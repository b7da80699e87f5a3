"""h2h generate, greedy and by beam search, on trained runs."""

import pytest

from headtohead import HeadToHeadError, files
from headtohead.execution.loaded import load
from headtohead.schema.run_config import BeamConfig
from made import error_line
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
    design = [{"one_at_a_time": {"evaluate.decode": ["beam", "non-autoregressive"]}}]
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
    decodings = ("greedy", "beam", "non-autoregressive")
    assert [
        files.read_json(run_of(decode) / "results.json")["decoding"] for decode in decodings
    ] == [
        {"decode": "greedy", "max_length": 9},
        {"decode": "beam", "max_length": 9, "size": 4, "length_penalty": 0.6},
        {"decode": "non-autoregressive"},
    ]


def test_a_run_is_scored_on_its_beam_search_translations(run_of):
    greedy, beam = run_of("greedy"), run_of("beam")
    sources = [
        row.split("\t")[0]
        for row in (beam / "translations.tsv").read_text("utf-8").splitlines()[1:]
    ]
    assert load(beam).translate(sources) == hypotheses(beam)
    assert load(greedy).translate(sources) == hypotheses(greedy)
    # Training does not depend on decoding: both runs have the same beam search translations.
    assert load(greedy).translate(sources, BeamConfig()) == hypotheses(beam)
    assert hypotheses(beam) != hypotheses(greedy)


def test_a_beam_of_one_equals_greedy_decoding(study, run_of):
    def translated(decode, *options):
        return study.h2h("generate", str(run_of(decode)), *options, *SENTENCES).stdout

    assert translated("beam", "--beam", "1", "--length-penalty", "0") == translated("greedy")
    wide = translated("greedy", "--beam", "4")
    assert wide == translated("beam")
    assert len(wide.splitlines()) == 3


def test_invalid_options_are_one_line(study, run_of):
    without_beam = study.h2h(
        "generate", str(run_of("greedy")), "--length-penalty", "1", "she eats", code=2
    )
    assert without_beam.stderr == "h2h: --length-penalty requires --beam\n"
    zeros = run_of("non-autoregressive")
    line = error_line(study.h2h("generate", str(zeros), "--beam", "4", "she eats", code=2))
    assert line.startswith(f"run '{zeros.name}' decodes all words in a single pass ")
    with pytest.raises(HeadToHeadError, match=r"which has no beam"):
        load(zeros).generate([4, 5, 3], BeamConfig())


def test_maps_of_a_run_with_beam_search_use_its_translations(run_of):
    loaded = load(run_of("beam"))
    maps = loaded.attention("the cat sees a dog")
    written = loaded.translate(["the cat sees a dog"])[0].split()
    assert maps.record["target_tokens"][1:] == written
