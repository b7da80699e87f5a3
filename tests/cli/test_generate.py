"""h2h generate on trained runs."""

import pytest
import torch

from headtohead import files
from headtohead.errors import HeadToHeadError
from headtohead.execution.loaded import load
from headtohead.model.transformer import Transformer
from made.study import Study

pytestmark = pytest.mark.slow

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


@pytest.mark.parametrize("decode", ["greedy", "non-autoregressive"])
def test_a_run_is_scored_on_its_own_translations(decode, study, run_of):
    run = run_of(decode)
    rows = (run / "translations.tsv").read_text("utf-8").splitlines()[1:]
    sources = [row.split("\t")[0] for row in rows]
    assert load(run).translate(sources) == hypotheses(run)
    printed = study.h2h("generate", str(run), *SENTENCES).stdout
    assert printed.splitlines() == load(run).translate(SENTENCES)


def test_decoding_in_one_pass_has_no_boundaries_and_goes_on_after_eos(run_of):
    run = load(run_of("non-autoregressive"))
    vocabulary = run.data.target_vocabulary
    boundaries = (vocabulary.pad, vocabulary.sos, vocabulary.eos)
    after_eos = 0
    for seed in range(100):  # a trained model writes nothing but <eos> after the first one
        untrained = Transformer(run.config, [seed], *run.model.vocab_sizes)
        run.model.load_state_dict(untrained.state_dict())
        source = run.tokenizer.encode(SENTENCES[0])
        ids = torch.tensor([[source]])
        lengths = torch.tensor([[len(source)]])
        best = run.model(ids, lengths, torch.zeros_like(ids), lengths)[0, 0].argmax(-1).tolist()
        assert run.generate(source) == [index for index in best if index != vocabulary.pad]
        text = " ".join(vocabulary.words[index] for index in best if index not in boundaries)
        assert run.translate(SENTENCES[:1]) == [text]
        assert run.tokenizer.decode(run.generate(source)) == text
        end = best.index(vocabulary.eos) if vocabulary.eos in best else len(best)
        after_eos += any(index not in boundaries for index in best[end:])
    assert after_eos > 0


@pytest.mark.parametrize("decode", ["greedy", "non-autoregressive"])
def test_sources_that_the_model_cannot_read_are_refused(run_of, decode):
    run = load(run_of(decode))
    size = run.tokenizer.vocab_size("source")
    with pytest.raises(HeadToHeadError, match="a source has no token; write at least one word"):
        run.generate([])
    for index in (-1, size):
        with pytest.raises(HeadToHeadError, match=f"the id {index}; expected an id from 0 to"):
            run.generate([2, index, 3])


def test_maps_without_a_target_use_the_translation_of_the_run(run_of):
    loaded = load(run_of("greedy"))
    maps = loaded.attention("the cat sees a dog")
    written = loaded.translate(["the cat sees a dog"])[0].split()
    assert maps.record["target_tokens"][1:] == written
