"""Studies whose variants differ in the architecture."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from execution.conftest import Command
from headtohead import files
from headtohead.execution.loaded import load
from made.study import TINY, Study

TEXT = {"question": "Is it learned?", "base": TINY["base"], "seeds": 1}
AXIS = [
    {
        "product": {
            "model.architecture": ["encoder-decoder", "decoder-only"],
            "positional": ["rotary", "alibi"],
        }
    }
]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory, cache: Path, h2h_here: Command) -> Study:
    """A finished study of two encodings in both architectures."""
    study = Study(tmp_path_factory.mktemp("architectures"), cache, h2h_here)
    study.write(
        base={"train": {"steps": 8}, "evaluate": {"test_limit": 8}},
        baseline={"positional": "rotary"},
        design=AXIS,
        question="Does an encoder help?",
    )
    study.run()
    return study


def test_architectures_are_an_axis(compared: Study) -> None:
    assert set(compared.states().values()) == {"DONE"}
    scores = compared.scores()
    assert len(scores) == 8
    of = {name: {*own} for name, own in scores.items()}
    roles = {
        name: {metric.split("/")[1] for metric in own if metric.count("/") == 2}
        for name, own in of.items()
    }
    for name, own in roles.items():
        assert own == ({"decoder"} if "decoder-only" in name else {"encoder", "decoder", "cross"})
    for own in of.values():
        assert {
            "test/exact_match",
            "test/bleu",
            "test/chrf",
            "test/loss",
            "valid/loss",
            "train/loss",
        } <= own
    stacks = {
        tuple(sorted(files.read_json(path / "run.json")["execution"]["stack"]))
        for path in compared.directories()
    }
    assert sorted(map(len, stacks)) == [4, 4]
    assert all(len({"decoder-only" in member for member in stack}) == 1 for stack in stacks)
    assert "decoder-only" in compared.page()
    assert "training" not in compared.run().stderr


def test_a_decoder_only_run_is_loaded_and_translates(compared: Study) -> None:
    path = next(path for path in compared.directories() if "decoder-only" in path.name)
    run = load(path)
    rows = [line.split("\t") for line in (path / "translations.tsv").read_text().splitlines()[1:]]
    assert run.translate([row[0] for row in rows]) == [row[2] for row in rows]
    maps = run.attention(rows[0][0])
    assert [*maps.weights] == ["decoder"]
    tokens = maps.record["target_tokens"]
    assert tokens[: len(maps.record["source_tokens"]) + 1] == [
        *maps.record["source_tokens"],
        "<sos>",
    ]
    assert maps.weights["decoder"].shape[-2:] == (len(tokens), len(tokens))


def test_commands_on_a_finished_run_work_without_an_encoder(compared: Study) -> None:
    path = next(path for path in compared.directories() if "decoder-only" in path.name)
    source = (path / "translations.tsv").read_text().splitlines()[1].split("\t")[0]
    plain = compared.h2h("generate", path.name, source).stdout
    compared.h2h("export", path.name, "out")
    assert compared.h2h("generate", "out", source).stdout == plain
    target = torch.tensor([load(path).tokenizer.encode("le chat", "target")[:-1]])
    traced = compared.h2h(
        "trace", path.name, source, "--target", "le chat", "--format", "npz", "--out", "a.npz"
    )
    assert traced.stdout == "a.npz\n"
    with np.load(compared.folder / "a.npz") as arrays:
        read = load(path).tokenizer.encode(source)
        assert arrays["decoder.ids"].tolist() == [*read, *target[0].tolist()]
        expected = load(path).logits(torch.tensor([read]), target)[0]
        np.testing.assert_allclose(arrays["logits"], expected, rtol=0, atol=1e-5)
    compared.h2h("ablate-heads", path.name)
    heads = files.read_json(path / "heads.json")["heads"]
    assert {head["role"] for head in heads} == {"decoder"}
    assert any(head["without-one"]["loss"] for head in heads)
    reading = "1 layer (decoder-only: source and target as one sequence, loss on the target alone)"
    assert f"1 encoder + 1 decoder layers / {reading}" in compared.page()
    card = (compared.folder / "out" / "README.md").read_text()
    assert reading in card
    assert "translate(" in card


def test_a_decoder_only_run_is_matched(compared: Study) -> None:
    study = replace(compared, folder=compared.folder / "matched")
    study.folder.mkdir()
    base: dict[str, Any] = {
        "model": {"architecture": "decoder-only"},
        "evaluate": {"test_limit": 8},
    }
    matched = {
        "design": [{"one_at_a_time": {"feed_forward": ["swiglu"]}}],
        "match": "parameters",
        "seeds": 1,
    }
    study.write(base=base, baseline={"feed_forward": "relu"}, **matched)
    planned = json.loads(
        study.h2h("plan", str(study.file), "--runs", str(study.runs), "--format", "json").stdout
    )
    counts = [variant["counts"] for variant in planned["variants"]]
    unit = 8 + 1 + 8  # parameters of a further unit of d_ff
    assert counts[0]["non_embedding"] == pytest.approx(counts[1]["non_embedding"], abs=unit / 2)


def test_bits_per_byte_of_a_text_are_those_of_the_loaded_model(study: Study) -> None:
    (study.folder / "text.txt").write_text(
        "the cat sees a dog; le chien aimé dort.\n" * 60, encoding="utf-8"
    )
    data = {"dataset": "text", "file": "text.txt", "block": 16}
    content = TEXT | {"base": TEXT["base"] | {"data": data}}
    replace(study, content=content).write(base={"train": {"steps": 4}})
    study.run()
    (path,) = study.directories()
    metrics = files.read_json(path / "results.json")["metrics"]
    run = load(path)
    nats, size = 0.0, 0.0
    for ids in run.data.splits["test"].target:
        target = torch.tensor([ids.tolist()])
        logits = run.logits(target[:, :0], target[:, :-1])[0]
        nats -= float(logits.log_softmax(-1).gather(-1, target[0, 1:, None]).sum())
        size += sum(len(run.data.target_vocabulary.words[index]) for index in ids[1:])
    assert metrics["test/bits_per_byte"] == pytest.approx(nats / math.log(2) / size, rel=1e-5)
    assert metrics["test/bits_per_byte"] < metrics["test/loss"] / math.log(2)  # é has two bytes
    assert "bits per byte" in study.page()
    probes = files.read_json(path / "attention" / "probes.json")
    assert [probe["source"] for probe in probes] == ["", ""]


def test_a_text_run_continues_a_prompt(study: Study) -> None:
    (study.folder / "text.txt").write_text("abcdefgh\n" * 400, encoding="utf-8")
    data = {
        "dataset": "text",
        "file": "text.txt",
        "block": 12,
    }  # the blocks of such a text are equal
    learning = {"train": {"steps": 150, "lr": 0.02}, "model": {"d_model": 16, "dropout": 0.0}}
    replace(study, content=TEXT | {"base": TEXT["base"] | {"data": data}}).write(
        base=learning, probes=["cde"]
    )
    plan = study.h2h("plan", str(study.file)).stdout
    assert "leaky split 'passages': 100.0 % of the test text is in training" in plan
    study.run()
    (path,) = study.directories()
    study.h2h("export", path.name, "out")
    for run in (path.name, "out"):
        done = study.h2h("generate", run, "--prompt", "cde", "--tokens", "20", "--temperature", "0")
        assert done.stdout == ("abcdefgh\n" * 4)[2:25] + "\n"
    card = (study.folder / "out" / "README.md").read_text()
    assert "1 layer (decoder-only)," in card
    assert "test blocks of the dataset" in card
    assert "continue_text(" in card
    assert "translate" not in card
    unknown = study.h2h("generate", path.name, "--prompt", "aéb", "--tokens", "1").stderr
    assert unknown == "note: not in the vocabulary: é\n"
    (probe,) = files.read_json(path / "attention" / "probes.json")
    assert (probe["source"], probe["target_tokens"]) == ("", ["c", "d", "e"])
    blank = study.h2h(
        "generate", path.name, "--prompt", "\n", "--tokens", "3", "--temperature", "0"
    )
    assert blank.stdout == "\nabc\n"
    assert (
        "prompt 1 is empty; run h2h generate"
        in study.h2h("generate", path.name, "--prompt", "", code=2).stderr
    )
    sampled = [
        study.h2h("generate", path.name, "a", "--temperature", "9", "--seed", seed).stdout
        for seed in "112"
    ]
    assert sampled[0] == sampled[1] != sampled[2]
    assert len(sampled[0]) == 202
