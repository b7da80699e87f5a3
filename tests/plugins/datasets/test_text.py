"""text: files in blocks of characters, bytes or subwords, for decoder-only models."""

import hashlib
import json
import lzma
import time
from itertools import pairwise

import numpy as np
import pytest

from headtohead.config.builder import resolve
from headtohead.data import BYTES, cache_root, prepare, text_tokens, written
from headtohead.data.tokeniser import Unit
from headtohead.planning.compatibility import find_incompatibility
from headtohead.planning.pitfalls import find_pitfalls
from headtohead.testing.dataset_invariants import DATASET_INVARIANTS, DatasetSubject
from headtohead_plugins.datasets import text
from headtohead_plugins.datasets.text import Options, Text, predicted_bytes
from made import refused

WORDS = "naïve cafés sell “crêpes”,\ttwo for €5.\n\nOr  three\u2028for ten; <pad> costs more.\n"
UNITS = ["character", "byte", "subword"]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(WORDS * 40, encoding="utf-8", newline="")
    return str(path)


def readable(prepared):
    return Unit("text-character").plain_text(prepared)


def load(file=None, split="last", **options):
    return Text.load(Options(file=file and str(file), **options), split, cache_root())


@pytest.mark.timed
def test_the_time_of_preparing_a_text_grows_with_its_length(tmp_path):
    path = tmp_path / "long.txt"
    letters = np.random.default_rng(1).integers(97, 107, 400_000, dtype=np.uint8)
    path.write_bytes(letters.tobytes())
    raw = {"data": {"dataset": "text", "file": str(path), "block": 16}, "train": {"steps": 1}}
    config = resolve(raw)
    started = time.process_time()
    assert len(prepare(config.data, cache_root()).splits["train"]) > 15_000
    assert time.process_time() - started < 6


def blocks_of(file, unit, **more):
    if unit == "subword":
        pytest.importorskip("tokenizers")
        more["subwords"] = 300
    corpus = load(file, unit=unit, **more)
    return {
        part: [pair.target for pair in corpus.pairs if pair.split == part]
        for part in ("train", "valid", "test")
    }


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


def play(lines=3000):
    """Return a text of lines of different lengths, all different."""
    generator = np.random.default_rng(2)
    letters = [*"abcdefghi jklmnopé ☃"]
    return [
        f"{line} {''.join(generator.choice(letters, generator.integers(5, 60)))}\n"
        for line in range(lines)
    ]


@pytest.mark.parametrize("unit", UNITS)
def test_passages_are_spread_over_the_text_and_no_block_crosses_a_cut(tmp_path, unit):
    more = {}
    if unit == "subword":
        pytest.importorskip("tokenizers")
        more["subwords"] = 300
    path = tmp_path / "play.txt"
    content = "".join(play())
    path.write_text(content, encoding="utf-8")
    corpus = load(path, "passages", unit=unit, block=24, **more)
    texts = {}
    for part, places in corpus.passages.items():
        for start, _ in places:
            blocks = [
                pair.target.split(" ") for pair in corpus.pairs if pair.group == f"{part} {start}"
            ]
            assert all(len(block) == 25 for block in blocks[:-1])
            assert all(before[-1] == after[0] for before, after in pairwise(blocks))
            tokens = [*blocks[0], *(token for block in blocks[1:] for token in block[1:])]
            texts[start] = readable(" ".join(tokens))
    assert "".join(texts[start] for start in sorted(texts)) == content
    assert all(
        texts[start] == content[start:end]
        for places in corpus.passages.values()
        for start, end in places
    )
    assert {part: len(places) for part, places in corpus.passages.items()} == {
        "train": 41,
        "valid": 20,
        "test": 20,
    }
    assert all(start == 0 or content[start - 1] == "\n" for start in texts)
    held_out = sum(
        end - start for part in ("valid", "test") for start, end in corpus.passages[part]
    )
    assert 0.19 < held_out / len(content) <= 0.2


def test_other_seeds_give_other_passages_and_the_last_split_has_none(tmp_path):
    path = tmp_path / "play.txt"
    path.write_text("".join(play()), encoding="utf-8")
    by_seed = [load(path, "passages", passage_seed=seed).passages["test"] for seed in (1, 1, 2)]
    assert by_seed[0] == by_seed[1] != by_seed[2]
    assert len(load(path).passages["test"]) == 1
    raw = {"data": {"dataset": "text", "file": str(path), "split": "last", "passage_seed": 2}}
    assert "passage_seed" in refused(resolve, raw | {"train": {"steps": 1}})


def test_the_record_has_the_passages_of_each_part_and_groups_are_passages(tmp_path):
    path = tmp_path / "play.txt"
    path.write_text("".join(play()), encoding="utf-8")
    data = {"dataset": "text", "file": str(path), "block": 24}
    prepared = prepare(resolve({"data": data, "train": {"steps": 1}}).data, cache_root())
    record = prepared.record["passages"]
    for part, split in prepared.splits.items():
        lengths = [end - start for start, end in record[part]["places"]]
        assert record[part]["number"] == len(lengths) == len(set(split.groups))
        assert record[part]["tokens"] == sum(lengths) - len(lengths)  # the first has no label
        labels = np.bincount(split.groups, weights=[len(ids) - 1 for ids in split.target])
        assert labels.tolist() == [length - 1 for length in lengths]
    assert [note for note in prepared.record["notes"] if "fewer than" in note] == []
    path.write_text("".join(play(200)), encoding="utf-8")
    prepared = prepare(resolve({"data": data, "train": {"steps": 1}}).data, cache_root())
    assert "validation or test has fewer than 20 passages" in " ".join(prepared.record["notes"])


def test_a_second_file_is_held_out_as_a_whole_in_passages(tmp_path):
    lines = play()
    (tmp_path / "train.txt").write_text("".join(lines[:1000]), encoding="utf-8")
    held_out = "".join(lines[1000:])
    (tmp_path / "valid.txt").write_text(held_out, encoding="utf-8")
    corpus = load(tmp_path / "train.txt", "passages", valid_file=str(tmp_path / "valid.txt"))
    assert corpus.passages["train"] == [(0, len("".join(lines[:1000])))]
    places = sorted([*corpus.passages["valid"], *corpus.passages["test"]])
    assert len(places) == 40
    assert (places[0][0], places[-1][1]) == (0, len(held_out))
    assert all(before[1] == after[0] for before, after in pairwise(places))


@pytest.mark.parametrize("end", ["\r\n", "", "\n\n"])
def test_line_ends_are_those_of_the_file(tmp_path, end):
    path, content = tmp_path / "windows.txt", "one\r\ntwo\n" * 40 + end
    path.write_bytes(content.encode())
    parts = blocks_of(str(path), "byte", block=1000)
    assert "".join(readable(block) for blocks in parts.values() for block in blocks) == content


@pytest.mark.parametrize("unit", UNITS[:2])
def test_every_dataset_invariant_holds(file, unit):
    subject = DatasetSubject.load("text", Text, Options(file=file, unit=unit))
    verdicts = {invariant.name: invariant(subject) for invariant in DATASET_INVARIANTS}
    assert {
        name: str(verdict) for name, verdict in verdicts.items() if verdict.state != "holds"
    } == {}


def test_a_file_needs_no_other_settings(file):
    config = resolve({"data": {"dataset": "text", "file": file}, "train": {"steps": 1}})
    assert config.model.architecture == "decoder-only"
    assert (config.evaluate.decode, config.data.target_boundaries) == ("none", "none")
    data = prepare(config.data, cache_root())
    assert data.record["longest"] == {"source": 0, "target": 65}
    assert not data.record["leaky"] or data.record["leak"] <= 1
    test = data.splits["test"]
    assert [len(own) for own in test.references] == [1] * len(test)
    assert data.tokenisers["target"].prepared(test.target[0].tolist()) == test.target_text[0]
    assert data.decode(test.target[0].tolist()) == readable(test.target_text[0])
    longest = data.record["longest"]
    assert find_incompatibility(config, longest) is None
    assert "no boundary tokens" not in [pitfall.name for pitfall in find_pitfalls(config)]


def test_an_encoder_decoder_is_excluded_with_the_reason(file):
    raw = {
        "data": {"dataset": "text", "file": file},
        "train": {"steps": 1},
        "model.architecture": "encoder-decoder",
    }
    reason = find_incompatibility(resolve(raw), {"source": 0, "target": 65})
    assert reason == "dataset 'text' has no sources to encode; set model.architecture: decoder-only"
    raw["data"] |= {"valid_file": file, "held_out": 0.3}
    assert "held_out is not used with valid_file" in refused(resolve, raw)


def test_unusable_files_are_refused(tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("a few words")
    message = "dataset 'text' needs a file; set data.file to a text file, or data.download: tinyshakespeare"
    assert refused(load) == message
    assert (
        "too short: valid has no token to predict; use a longer file, or change data.held_out"
        in refused(load, path, held_out=0.001)
    )


def test_training_text_in_the_test_is_a_leak_wherever_it_begins(tmp_path):
    text = "".join(np.random.default_rng(1).choice([*"abcdefgh "], 3001))
    leaks = []
    for name, content in (("twice", text * 2), ("once", text)):
        (tmp_path / name).write_text(content)
        data = {"dataset": "text", "file": str(tmp_path / name), "block": 32}
        leaks.append(
            prepare(resolve({"data": data, "train": {"steps": 1}}).data, cache_root()).record[
                "leak"
            ]
        )
    assert leaks == [1.0, 0.0]


def test_a_validation_file_of_training_text_is_refused(tmp_path):
    """The blocks of the two files begin at other characters, so the leak of the split would be 0."""
    text = "".join(map(str, range(1000)))
    (tmp_path / "train.txt").write_text(text)
    (tmp_path / "valid.txt").write_text(text[:-7])
    message = refused(load, tmp_path / "train.txt", valid_file=str(tmp_path / "valid.txt"))
    assert "valid.txt' ends with a part of " in message


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"tokens": "character"},
            "data.tokens: dataset 'text' does not use it; set data.unit to character, byte or",
        ),
        ({"valid": 0.2}, "data.valid: dataset 'text' does not use it; set data.held_out"),
        (
            {"vocabulary.max_size": 10},
            "data.vocabulary.max_size: dataset 'text' does not use it; every token of",
        ),
        (
            {"vocabulary.file": "a.json"},
            "does not use it; set data.unit, or data.file to a .bin file of token ids",
        ),
        (
            {"vocabulary.ids": "printed"},
            "data.vocabulary.ids: dataset 'text' does not use it; ids are in the order",
        ),
        (
            {"target_boundaries": "sos-eos"},
            "does not use it; a text has no boundary tokens; leave it out",
        ),
        ({"file": "train.bin", "unit": "byte"}, "a .bin file has its own tokens; leave out unit"),
        (
            {"symbols": "b.json"},
            "symbols are the texts of ids; leave them out, or set file to a .bin",
        ),
        ({"subwords": 400}, "subwords is the number of tokens of unit: subword; set it, or leave"),
        (
            {"file": "train.bin", "valid_file": "a.txt"},
            "file and valid_file must both be .bin files of ids, or both",
        ),
    ],
)
def test_options_without_an_effect_are_refused_with_those_that_have_one(file, options, reason):
    raw = {"data": {"dataset": "text", "file": file, **options}, "train": {"steps": 1}}
    assert reason in refused(resolve, raw)


def test_an_unknown_character_is_one_token_and_no_byte_is_unknown():
    snow, zed, known = map(written, "☃Žé")
    for unit in ("text-character", "text-symbol"):
        assert text_tokens("a☃Žb", unit, ["a", "b", known]) == ["a", snow, zed, "b"]
    assert text_tokens("☃", "text-byte") == [*snow]
    assert text_tokens("☃", "text-subword", [*BYTES]) == [*snow]


@pytest.mark.parametrize("unit", UNITS[1:])
def test_prompts_have_the_tokens_of_training_and_ids_do_not_depend_on_blocks(tmp_path, unit):
    path, letters = tmp_path / "words.txt", np.random.default_rng(1).choice([*"abcdé \n1"], 4000)
    path.write_text(WORDS * 40 + "".join(letters) + "elsewhere: ☃", encoding="utf-8", newline="")
    vocabularies = []
    for block in (7, 100_000):
        options = {"dataset": "text", "split": "last", "file": str(path)}
        options |= {"unit": unit, "block": block}
        options |= {"subwords": 300} if unit == "subword" else {}
        data = prepare(resolve({"data": options, "train": {"steps": 1}}).data, cache_root())
        vocabularies.append(data.target_vocabulary.words)
    assert vocabularies[0] == vocabularies[1]
    assert len(vocabularies[0]) == {"byte": 260, "subword": 304}[unit]
    train, test = ("".join(data.splits[part].target_text) for part in ("train", "test"))
    assert text_tokens(readable(train), f"text-{unit}", vocabularies[0]) == train.split(" ")
    assert {*test.split(" ")} <= {*vocabularies[0]}


LETTERS = ["\n", " ", "a", "é", "Ġ"]
IDS = np.random.default_rng(1).integers(len(LETTERS), size=(2, 400)).astype("<u2")


@pytest.fixture
def binary(tmp_path):
    """Return the files of token ids of a training and a held-out part, as nanoGPT writes them."""
    for name, ids in zip(("train.bin", "val.bin"), IDS, strict=True):
        (tmp_path / name).write_bytes(ids.tobytes())
    (tmp_path / "meta.pkl").write_bytes(b"not a pickle")
    return tmp_path


def target_tokens(folder, **options):
    pairs = load(
        folder / "train.bin", valid_file=str(folder / "val.bin"), block=1000, **options
    ).pairs
    return {pair.split: pair.target.split(" ") for pair in pairs}


@pytest.mark.parametrize("as_list", [True, False])
def test_files_of_ids_have_the_texts_of_their_symbols(binary, as_list):
    symbols = LETTERS if as_list else {text: index for index, text in enumerate(LETTERS)}
    (binary / "symbols.json").write_text(json.dumps(symbols), encoding="utf-8")
    parts = target_tokens(binary, symbols=str(binary / "symbols.json"))
    texts = {part: readable(" ".join(tokens)) for part, tokens in parts.items()}
    train, held_out = ("".join(LETTERS[index] for index in ids) for ids in IDS)
    assert texts == {"train": train, "valid": held_out[:200], "test": held_out[200:]}
    assert predicted_bytes(" ".join(parts["train"])) == len(train[1:].encode())


def test_files_of_ids_without_symbols_have_numbers_of_two_bytes(binary):
    parts = target_tokens(binary)
    assert Unit("text-number").join(parts["train"]) == " ".join(str(index) for index in IDS[0])
    assert predicted_bytes(" ".join(parts["train"])) == 2 * (len(IDS[0]) - 1)
    assert text_tokens("3 1", "text-number") == ["№3", "№1"]


def test_symbols_that_the_alphabet_has_too_are_plain_text(tmp_path):
    (tmp_path / "train.bin").write_bytes(np.array([0, 1, 2, 3] * 100, "<u2").tobytes())
    (tmp_path / "symbols.json").write_text(json.dumps(["é", "à", "a", "b"]))
    pairs = load(tmp_path / "train.bin", symbols=str(tmp_path / "symbols.json"), block=3).pairs
    assert readable(pairs[0].target) == "éàab"
    assert predicted_bytes(pairs[0].target) == len("àab".encode())


def test_symbols_in_the_alphabet_of_bytes_are_kept(tmp_path):
    (tmp_path / "train.bin").write_bytes(np.array([2, 0, 1] * 100, "<u2").tobytes())
    texts = ["Ġthe", "Ã©", "Ċ", *(byte for byte in BYTES if byte != "Ċ")]
    (tmp_path / "vocab.json").write_text(
        json.dumps({text: number for number, text in enumerate(texts)})
    )
    pairs = load(tmp_path / "train.bin", symbols=str(tmp_path / "vocab.json"), block=2).pairs
    assert pairs[0].target == "Ċ Ġthe Ã©"
    assert readable(pairs[0].target) == "\n theé"


ZEROS = bytes(198)


@pytest.mark.parametrize(
    ("content", "symbols", "reason"),
    [
        (
            b"\x05\x00" * 99,
            ["a"],
            "has the id 5 (token 1), which data.symbols lacks; add its text, or use the symbols",
        ),
        (ZEROS, ["a", "b", "a"], 'has the symbol "a" for the id 2 and for the id 0; keep one'),
        (
            ZEROS,
            ["a", ""],
            'has the symbol "" for the id 1, which has no character; write its text',
        ),
        (
            ZEROS,
            ["a", "\ud83d"],
            'has the symbol "\\ud83d" for the id 1, which is half of a character; write whole',
        ),
        (
            ZEROS,
            ["a", "<eos>"],
            'has the symbol "<eos>" for the id 1, which is a special token of headtohead; write',
        ),
        (ZEROS, [3], "has no symbols; write a JSON list of the texts of ids"),
        (ZEROS, [], "has no symbols; write a JSON list of the texts of ids"),
        (ZEROS, "ab", "has no symbols; write a JSON list of the texts of ids"),
        (ZEROS, {"a": 0, "b": 0}, 'has two symbols for the id 0, "a" and "b"; keep one'),
        (
            ZEROS,
            {"a": 0, "b": 1.7},
            'has the id 1.7 for the symbol "b"; an id is a whole number from 0 to 65,535',
        ),
        (
            ZEROS,
            {"a": 0, "b": 1.0},
            'has the id 1.0 for the symbol "b"; an id is a whole number from 0 to 65,535',
        ),
        (
            ZEROS,
            {"a": 0, "b": -1},
            'has the id -1 for the symbol "b"; an id is a whole number from 0 to 65,535',
        ),
        (
            ZEROS,
            {"a": 0, "b": True},
            'has the id true for the symbol "b"; an id is a whole number from 0 to 65,535',
        ),
        (
            ZEROS,
            {"0": "a"},
            'has the id "a" for the symbol "0"; an id is a whole number from 0 to 65,535',
        ),
        (
            ZEROS,
            {"a": " 0 "},
            'has the id " 0 " for the symbol "a"; an id is a whole number from 0 to 65,535',
        ),
        (
            ZEROS,
            {"a": 0, "b": 2**64},
            'has the id 18446744073709551616 for the symbol "b"; an id is a whole number',
        ),
        (
            ZEROS,
            {"a": 0, "b": float("inf")},
            'has the id Infinity for the symbol "b"; an id is a whole number',
        ),
        (
            ZEROS,
            {"a": 0, "b": 65_536},
            'has the id 65536 for the symbol "b"; an id is a whole number from 0 to 65,535',
        ),
    ],
)
def test_unusable_symbols_are_refused(tmp_path, content, symbols, reason):
    (tmp_path / "train.bin").write_bytes(content)
    (tmp_path / "symbols.json").write_text(json.dumps(symbols))
    assert reason in refused(load, tmp_path / "train.bin", symbols=str(tmp_path / "symbols.json"))


def test_a_symbol_that_is_written_twice_is_refused(tmp_path):
    """`json.loads` keeps the last id, so the first would have no text or that of another symbol."""
    (tmp_path / "train.bin").write_bytes(ZEROS)
    (tmp_path / "symbols.json").write_text('{"a": 0, "b": 1, "a": 1}')
    message = refused(load, tmp_path / "train.bin", symbols=str(tmp_path / "symbols.json"))
    assert message.endswith('is not a JSON file of symbols: the name "a" occurs twice; correct it')


def test_a_symbol_outside_the_alphabet_is_one_token_beside_symbols_in_it(tmp_path):
    """GPT-NeoX adds runs of spaces, as plain text, to symbols in the alphabet."""
    texts = [*BYTES, "Ġthe", "  "]
    (tmp_path / "train.bin").write_bytes(np.array([256, 257, 0] * 100, "<u2").tobytes())
    (tmp_path / "vocab.json").write_text(json.dumps(texts))
    pairs = load(tmp_path / "train.bin", symbols=str(tmp_path / "vocab.json"), block=2).pairs
    assert pairs[0].target == f"Ġthe ĠĠ {texts[0]}"


def test_files_with_the_header_of_modded_nanogpt_have_the_ids_after_it(binary):
    header = np.zeros(256, "<i4")
    plain = target_tokens(binary)
    for name, ids in zip(("train.bin", "val.bin"), IDS, strict=True):
        header[:3] = 20240520, 1, len(ids)
        (binary / name).write_bytes(header.tobytes() + ids.tobytes())
    assert target_tokens(binary) == plain


def test_the_ending_of_files_of_ids_has_any_case(binary):
    expected = target_tokens(binary)["train"]
    (binary / "train.bin").rename(binary / "TRAIN.BIN")
    pairs = load(binary / "TRAIN.BIN", valid_file=str(binary / "val.bin"), block=1000).pairs
    assert pairs[0].target.split(" ") == expected


def test_a_named_text_is_downloaded_once_and_verified(site, monkeypatch):
    folder, url = site
    content = WORDS * 40
    (folder / "input.txt").write_bytes(content.encode())
    sha256 = hashlib.sha256(content.encode()).hexdigest()
    monkeypatch.setitem(text.DOWNLOADS, "tinyshakespeare", (f"{url}/input.txt", sha256))
    options = Options(download="tinyshakespeare", block=10**5)
    assert Text.cache_key(options, "last", cache_root()) is None
    loaded = Text.load(options, "last", cache_root())
    assert "".join(readable(pair.target) for pair in loaded.pairs) == content
    (folder / "input.txt").unlink()
    assert Text.load(options, "last", cache_root()).pairs == loaded.pairs
    assert Text.cache_key(options, "last", cache_root()) == sha256
    monkeypatch.setitem(text.DOWNLOADS, "tinyshakespeare", (f"{url}/input.txt", "0" * 64))
    assert "expected 0000" in refused(Text.load, options, "last", cache_root())


def test_tiny_shakespeare_has_the_checksum_65_characters_and_the_split_of_nanogpt(real):
    path = real("tinyshakespeare.txt.xz")
    whole = lzma.decompress(path.read_bytes()).decode()
    assert text.DOWNLOADS["tinyshakespeare"][1] == hashlib.sha256(whole.encode()).hexdigest()
    parts = blocks_of(str(path), "character")
    assert (
        len({token for blocks in parts.values() for block in blocks for token in block.split()})
        == 65
    )
    train = "".join([parts["train"][0], *(block[1:] for block in parts["train"][1:])])
    assert readable(train) == whole[: len(whole) * 9 // 10]


def test_the_passages_of_tiny_shakespeare_are_twenty_of_each_part_and_a_tenth_of_it(real, tmp_path):
    path = tmp_path / "input.txt"
    path.write_bytes(lzma.decompress(real("tinyshakespeare.txt.xz").read_bytes()))
    corpus = load(path, "passages")
    assert {part: len(places) for part, places in corpus.passages.items()} == {
        "train": 41,
        "valid": 20,
        "test": 20,
    }
    held_out = [end - start for part in ("valid", "test") for start, end in corpus.passages[part]]
    assert 100_000 <= sum(held_out) <= 112_000
