"""Text becomes ids and ids become text by the unit of the task, wherever a trained run is used."""

import json
import lzma
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headtohead
from headtohead.errors import HeadToHeadError
from headtohead.execution.loaded import LoadedRun
from headtohead.model.decoding import Ends
from headtohead.training.maps import SentenceMaps
from made import case_table
from made.study import TINY, Study

MADE = (
    "Return the naïve café,\ttwo  for €5.\n\nROMEO: le chien aimé dort; the dog sees a cat.\n" * 40
)
PROMPT = "Return the "
UNITS: dict[str, dict[str, Any]] = {"character": {}, "byte": {}, "subword": {"subwords": 300}}


def trained(study: Study, text: str, unit: str) -> tuple[Study, Path]:
    """Train a small model on a text and return the study and the run's directory."""
    (study.folder / "text.txt").write_text(text, encoding="utf-8", newline="")
    data = {"dataset": "text", "split": "last", "file": "text.txt", "block": 16, "unit": unit}
    data |= UNITS[unit]
    content = {"question": "Is it learned?", "base": TINY["base"] | {"data": data}, "seeds": 1}
    done = replace(study, content=content)
    done.write(base={"train": {"steps": 4}})
    done.run()
    (path,) = done.directories()
    return done, path


def expected_ids(run: LoadedRun, text: str, unit: str) -> list[int]:
    """Return the ids of a text whose tokens are single bytes or characters, from the words of the vocabulary."""
    words = run.data.target_vocabulary.words
    alphabet = {" ": "Ġ", "\n": "Ċ"}
    assert unit in ("character", "byte")
    return [words.index(alphabet.get(character, character)) for character in text]


def tokens_shown(maps: SentenceMaps) -> list[str]:
    return list(maps.record["target_tokens"])


@case_table("unit", UNITS, default=1)
def test_a_text_is_the_same_ids_in_every_use_of_a_run(study: Study, unit: str) -> None:
    if unit == "subword":
        pytest.importorskip("tokenizers")
    study, path = trained(study, MADE, unit)
    study.h2h("export", path.name, "out")
    for run in (headtohead.load(path), headtohead.load(study.folder / "out")):
        tokenizer = run.tokenizer
        ids = tokenizer.encode(PROMPT)
        if unit != "subword":
            assert ids == expected_ids(run, PROMPT, unit)
        assert tokenizer.decode(ids) == PROMPT
        assert tokenizer.decode(tokenizer.encode(MADE)) == MADE
        assert tokens_shown(run.attention(PROMPT)) == tokenizer.tokens(ids)
        assert tokens_shown(run.attention("", PROMPT)) == tokenizer.tokens(ids)
        assert run.unknown_words(PROMPT) == []
        logits = run.logits(torch.tensor([[]], dtype=torch.long), torch.tensor([ids]))[0]
        words = run.data.target_vocabulary
        logits[
            :, [words.words.index(name) for name in ("<pad>", "<unk>", "<sos>", "<eos>")]
        ] = -torch.inf
        following = tokenizer.decode([*ids, int(logits[-1].argmax())])
        assert run.continue_text(PROMPT, 1, temperature=0) == following
        generated = study.h2h(
            "generate", str(run.path), "--prompt", PROMPT, "--tokens", "1", "--temperature", "0"
        )
        assert generated.stdout == following + "\n"
    study.h2h("trace", path.name, PROMPT, "--format", "npz", "--out", "a.npz")
    with np.load(study.folder / "a.npz") as arrays:
        assert arrays["decoder.ids"].tolist() == ids
        assert "encoder.ids" not in arrays
        np.testing.assert_allclose(
            arrays["logits"],
            run.logits(torch.tensor([ids])[:, :0], torch.tensor([ids]))[0],
            atol=1e-5,
        )
    shown = study.h2h("trace", path.name, PROMPT, "--only", "chosen").stdout.splitlines()
    assert shown[1:3] == [
        f"source: {PROMPT}",
        f"target: {' '.join(tokenizer.tokens(ids))} (the given text)",
    ]


@case_table(
    ("unit", "decoded"),
    [("character", "a<unk>d"), ("subword", "a☃d"), ("byte", "a☃d")],
    default=1,
)
def test_an_unknown_character_is_what_it_is_in_training(
    study: Study, unit: str, decoded: str
) -> None:
    if unit == "subword":
        pytest.importorskip("tokenizers")
    study, path = trained(
        study, MADE + "a☃d" * 100, unit
    )  # the snowman is in validation and test only
    run = headtohead.load(path)
    ids = run.tokenizer.encode("a☃d")
    blocks = [block.tolist() for block in run.data.splits["test"].target]
    assert any(
        ids == block[start : start + len(ids)] for block in blocks for start in range(len(block))
    )
    assert run.tokenizer.decode(ids) == decoded
    assert run.unknown_words("a☃d") == (["☃"] if unit == "character" else [])


def test_a_temperature_is_finite_and_a_small_one_takes_the_most_probable_token(
    study: Study,
) -> None:
    study, path = trained(study, MADE, "byte")
    run = headtohead.load(path)
    for temperature in (-1.0, math.inf, math.nan):
        with pytest.raises(HeadToHeadError, match="is no finite number of at least 0"):
            run.continue_text(PROMPT, 1, temperature=temperature)
    assert run.continue_text(PROMPT, 5, 1e-50) == run.continue_text(PROMPT, 5, 0)


def test_probes_of_a_text_are_recorded_as_text(study: Study) -> None:
    study, path = trained(study, MADE, "byte")
    probes = json.loads((path / "attention" / "probes.json").read_text("utf-8"))
    run = headtohead.load(path)
    for probe in probes:
        assert probe["target"] in MADE
        assert probe["target_tokens"] == run.tokenizer.tokens(run.tokenizer.encode(probe["target"]))
        assert 1 <= len(probe["target_tokens"]) <= 16


def test_files_of_ids_have_their_symbols_or_numbers(study: Study) -> None:
    symbols = ["\n", " ", "ab", "a", "é"]
    ids = np.random.default_rng(1).integers(len(symbols), size=600).astype("<u2")
    (study.folder / "train.bin").write_bytes(ids.tobytes())
    (study.folder / "symbols.json").write_text(json.dumps(symbols), encoding="utf-8")
    for more, text, tokens in (({"symbols": "symbols.json"}, "aba é\n", 5), ({}, "3 1 4", 3)):
        data = {"dataset": "text", "file": "train.bin", "block": 16, **more}
        content = {"question": "Is it learned?", "base": TINY["base"] | {"data": data}, "seeds": 1}
        own = replace(study, content=content)
        own.write(base={"train": {"steps": 2}})
        own.run("--fresh")
        path = max(own.directories(), key=lambda found: found.stat().st_mtime)
        tokenizer = headtohead.load(path).tokenizer
        assert len(tokenizer.encode(text)) == tokens
        assert 1 not in tokenizer.encode(text)  # <unk>
        assert tokenizer.decode(tokenizer.encode(text)) == text


@case_table("tokens", ["subword", "word", "character"], default=1)
def test_sentences_are_normalised_texts_of_their_unit(study: Study, tokens: str) -> None:
    if tokens == "subword":
        pytest.importorskip("tokenizers")
    base = TINY["base"] | {"data": TINY["base"]["data"] | {"tokens": tokens}}
    done = replace(study, content={**TINY, "base": base, "seeds": 1})
    done.write(base={"train": {"steps": 2}})
    done.run()
    path = done.directories()[0]
    done.h2h("export", path.name, "out")
    for run in (headtohead.load(path), headtohead.load(done.folder / "out")):
        assert Ends.of(run.data.target_vocabulary) is not None
        for side, text in (("source", "the cat  sees a dog"), ("target", "le chat voit un chien")):
            ids = run.tokenizer.encode(text, side)
            assert run.tokenizer.decode(ids, side) == " ".join(text.split())
    assert (done.folder / "out" / "tokenizer.source.json").exists() == (tokens == "subword")


@case_table("unit", UNITS, default=1)
def test_shakespeare_is_decoded_as_it_was_encoded(study: Study, unit: str, real: Any) -> None:
    if unit == "subword":
        pytest.importorskip("tokenizers")
    text = lzma.decompress(real("tinyshakespeare.txt.xz").read_bytes()).decode()
    _, path = trained(study, text[:20_000], unit)
    tokenizer = headtohead.load(path).tokenizer
    assert tokenizer.decode(tokenizer.encode(text[:20_000])) == text[:20_000]
    assert tokenizer.decode(tokenizer.encode(PROMPT)) == PROMPT
