"""text: files in blocks of characters, bytes or subwords, for decoder-only models."""

import lzma
from itertools import pairwise

import pytest

from headtohead import HeadToHeadError
from headtohead.config.builder import resolve
from headtohead.data import cache_root, prepare
from headtohead.planning.compatibility import find_incompatibility
from headtohead.planning.pitfalls import find_pitfalls
from headtohead.plugins.registry import current
from headtohead.testing.dataset_invariants import DATASET_INVARIANTS, DatasetSubject
from headtohead_plugins.datasets.text import Options, Text, predicted_bytes, readable

WORDS = "naïve cafés sell “crêpes”,\ttwo for €5.\n\nOr  three\u2028for ten; <pad> costs more.\n"
UNITS = ["character", "byte", "subword"]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(WORDS * 40, encoding="utf-8", newline="")
    return str(path)


def blocks_of(file, unit, **more):
    if unit == "subword":
        pytest.importorskip("tokenizers")
    corpus = Text.load(Options(file=file, unit=unit, subwords=300, **more), "contiguous", cache_root())
    return {part: [pair.target for pair in corpus.pairs if pair.split == part] for part in ("train", "valid", "test")}


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("length", [7, 64])
def test_blocks_hold_the_file_in_order_and_predict_every_token_once(file, unit, length):
    parts = blocks_of(file, unit, block=length)
    joined = {}
    for part, blocks in parts.items():
        tokens = [block.split(" ") for block in blocks]
        assert all(len(block) == length + 1 for block in tokens[:-1])
        assert all(before[-1] == after[0] for before, after in pairwise(tokens))
        joined[part] = [*tokens[0], *(token for block in tokens[1:] for token in block[1:])]
    assert readable(" ".join(token for own in joined.values() for token in own)) == WORDS * 40
    predicted = sum(predicted_bytes(block) for blocks in parts.values() for block in blocks)
    assert predicted == len((WORDS * 40).encode()) - sum(len(own[0]) for own in joined.values())
    shares = {part: len(readable(" ".join(own))) / len(WORDS * 40) for part, own in joined.items()}
    assert shares == pytest.approx({"train": 0.9, "valid": 0.05, "test": 0.05}, abs=0.002)


@pytest.mark.parametrize("end", ["\r\n", "", "\n\n"])
def test_line_ends_are_those_of_the_file(tmp_path, end):
    path, text = tmp_path / "windows.txt", "one\r\ntwo\n" * 40 + end
    path.write_bytes(text.encode())
    parts = blocks_of(str(path), "byte", block=1000)
    assert "".join(readable(block) for blocks in parts.values() for block in blocks) == text


@pytest.mark.parametrize("unit", UNITS[:2])
def test_every_dataset_invariant_holds(file, unit):
    subject = DatasetSubject.load("text", Text, Options(file=file, unit=unit))
    verdicts = {invariant.name: invariant(subject) for invariant in DATASET_INVARIANTS}
    assert {name: str(verdict) for name, verdict in verdicts.items() if verdict.state != "holds"} == {}


def test_a_file_needs_no_other_settings(file):
    config = resolve({"data": {"dataset": "text", "file": file}, "train": {"steps": 1}}, current())
    assert config.model.architecture == "decoder-only"
    assert (config.evaluate.decode, config.data.target_boundaries) == ("none", "none")
    data = prepare(config.data, cache_root())
    assert data.record["longest"] == {"source": 0, "target": 65}
    assert not data.record["leaky"] or data.record["leak"] <= 1
    test = data.splits["test"]
    assert [len(own) for own in test.references] == [1] * len(test)
    assert data.target_vocabulary.decode(test.target[0].tolist()) == test.target_text[0]
    longest = data.record["longest"]
    assert find_incompatibility(config, longest, current()) is None
    assert "no boundary tokens" not in [pitfall.name for pitfall in find_pitfalls(config, current())]


def test_an_encoder_decoder_is_excluded_with_the_reason(file):
    raw = {"data": {"dataset": "text", "file": file}, "train": {"steps": 1}, "model.architecture": "encoder-decoder"}
    reason = find_incompatibility(resolve(raw, current()), {"source": 0, "target": 65}, current())
    assert reason == "dataset 'text' has no sources to encode; set model.architecture: decoder-only"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "dataset 'text' needs a file; set data.file to a text file"),
        ({"held_out": 0.001}, "too short: valid has no token to predict; change data.held_out"),
    ],
)
def test_unusable_files_are_refused(tmp_path, options, reason):
    path = tmp_path / "short.txt"
    path.write_text("a few words")
    given = {"file": str(path), **options} if options else {}
    with pytest.raises(HeadToHeadError, match=reason):
        Text.load(Options(**given), "contiguous", cache_root())


def test_tiny_shakespeare_has_65_characters_and_the_split_of_nanogpt(real):
    path = real("tinyshakespeare.txt.xz")
    text = lzma.decompress(path.read_bytes()).decode()
    parts = blocks_of(str(path), "character")
    assert len({token for blocks in parts.values() for block in blocks for token in block.split()}) == 65
    train = "".join([parts["train"][0], *(block[1:] for block in parts["train"][1:])])
    assert readable(train.replace(" ", "")) == text[: len(text) * 9 // 10]
