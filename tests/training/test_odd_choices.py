"""The notebooks' batches, labels and trainable parts, in complete tiny trainings."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headtohead.config.builder import resolve
from headtohead.data import PreparedData, cache_root, prepare, prepare_corpus
from headtohead.errors import HeadToHeadError
from headtohead.execution.worker import training_loss
from headtohead.planning.compatibility import (
    find_incompatibility,
    find_part_without_labels,
    longest_sequences,
)
from headtohead.planning.lengths import decoding_limit
from headtohead.plugins.dataset import Corpus, Pair
from headtohead.schema.run_config import DataConfig, RunConfig, changed
from headtohead.storage.results import MetricLine
from headtohead.storage.stack import ResumePoints
from headtohead.testing.tiny import tiny_config, tiny_data
from headtohead.training import evaluate
from headtohead.training.loop import End, Evaluation, StackTraining, TrainingEvents
from headtohead.training.maps import probe_maps
from headtohead.training.optimise import part_of
from headtohead.training.results import score_splits, translations_table
from made import case_table

CPU = torch.device("cpu")


def trained(config: RunConfig, seeds: list[int], data: PreparedData | None = None) -> StackTraining:
    stack = StackTraining(config, seeds, data or tiny_data(), CPU)
    stack.run()
    return stack


@pytest.mark.parametrize("shift", [True, False])
def test_a_batchs_loss_is_the_mean_over_its_labels(shift: bool) -> None:
    """Without a shift, a target token predicts itself."""
    quirks = {"notebooks": {"shift_targets": shift}}
    config = tiny_config(train={"batch_size": 48, "steps": 1}, quirks=quirks)
    seen: list[Evaluation] = []
    stack = StackTraining(
        config, [4], tiny_data(), CPU, events=TrainingEvents(on_evaluation=seen.append)
    )
    train = tiny_data().splits["train"]
    losses = []
    for source, target in zip(train.source, train.target, strict=True):
        ids = [
            torch.tensor(ids_).view(1, 1, -1) for ids_ in (source, target[:-1] if shift else target)
        ]
        lengths = [torch.tensor([[sentence.shape[-1]]]) for sentence in ids]
        with torch.no_grad():
            chances = stack.model(ids[0], lengths[0], ids[1], lengths[1])[0, 0].softmax(-1)
        labels = target[1:] if shift else target
        losses += [
            -math.log(float(chances[position, word]))
            for position, word in enumerate(labels.tolist())
        ]
    stack.run()
    assert seen[0].metrics["train/loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-9)


def pairs_of(*texts: tuple[str, str]) -> PreparedData:
    pairs = [Pair(source, target, source) for source, target in texts]
    corpus = Corpus(pairs, "", "", ("a", "b"))
    return prepare_corpus(
        corpus,
        DataConfig(
            dataset="invented",
            split="nothing-held-out",
            normalise="none",
            source_boundaries="none",
            target_boundaries="none",
            vocabulary={"ids": "frequency"},
        ),
    )


def test_targets_of_one_word_without_boundaries_give_no_loss_and_no_gradient() -> None:
    data = pairs_of(("a b", "x"), ("b", "y"), ("a", "y x z"))
    config = tiny_config(train={"batch_size": 1, "steps": 9, "lr": 0.1, "optimizer": "adam"})
    stack = StackTraining(config, [1, 2], data, CPU)
    lonely = 0
    for _, cut in zip(range(9), stack._batches(), strict=False):
        batch = stack.splits["train"].batch(cut.rows, cut.shape.source_time, cut.shape.target_time)
        losses = stack.gradients(cut.rows, cut.shape)
        for member, words in enumerate(batch.target_lengths[:, 0].tolist()):
            gradients = [p.grad[member].abs().max() for p in stack.parameters if p.grad is not None]
            assert (float(losses[member]) == 0.0) is (words == 0)
            assert (float(max(gradients)) == 0.0) is (words == 0)
            lonely += words == 0
        stack.optimizer.clear_gradients()
    assert lonely == 2 * 6
    stack.run()
    assert all(bool(torch.isfinite(parameter).all()) for parameter in stack.model.parameters())
    assert stack.active_members == [0, 1]


def test_a_batch_is_not_cut_where_its_rows_are_told_apart() -> None:
    by_row = {"name": "sinusoidal-by-row"}
    places = {"encoder": by_row, "decoder": by_row, "cross": "none"}
    config = tiny_config(positional=places, train={"batch_size": 8})
    found = []
    for pieces in (1, 4):
        stack = StackTraining(config, [1], tiny_data(), CPU)
        stack.num_microbatches = pieces
        cut = next(stack._batches())
        found.append(stack.gradients(cut.rows, cut.shape))
    assert torch.equal(found[0], found[1])


# -- parts -------------------------------------------------------------------------------------


@case_table(
    "parts",
    [["feed-forward", "cross-attention", "lm-head"], ["norm"], ["embeddings", "decoder-attention"]],
    default=1,
)
def test_only_the_parts_that_are_asked_for_are_trained(parts: list[str]) -> None:
    config = tiny_config(train={"steps": 3, "lr": 0.05, "weight_decay": 0.1, "trainable": parts})
    stack = StackTraining(config, [1, 2], tiny_data(), CPU)
    before = {name: value.clone() for name, value in stack.model.named_parameters()}
    stack.run()
    changed = {
        name
        for name, value in stack.model.named_parameters()
        if not torch.equal(value, before[name])
    }
    assert changed == {name for name in before if part_of(name) in parts}
    assert changed


@pytest.mark.parametrize(
    "model",
    [
        {"norm": "pre", "final_norm": True},
        {"tie_embeddings": "output", "shared_modules": ["norm", "feed-forward"]},
        {"quirks": {"notebooks": {"decoder_feed_forward": "after-each"}}},
    ],
)
def test_every_parameter_has_the_part_that_its_module_says(model: dict[str, Any]) -> None:
    stack = StackTraining(tiny_config(positional="learned", **model), [1], tiny_data(), CPU)
    kinds = {
        "LayerNorm": {"norm"},
        "StackedEmbedding": {"embeddings"},
        "StackedFeedForward": {"feed-forward"},
        "Learned": {"positional"},
        "MultiHeadAttention": {"encoder-attention", "decoder-attention", "cross-attention"},
    }
    checked = 0
    for name, module in stack.model.named_modules():
        allowed = kinds.get(type(module).__name__)
        for parameter, _ in module.named_parameters():
            if allowed:
                assert part_of(f"{name}.{parameter}") in allowed
                checked += 1
    assert checked >= len(list(stack.model.parameters())) - 2


# -- nothing is trained ------------------------------------------------------------------------


def test_no_epoch_leaves_the_weights_as_drawn_and_evaluates_them(tmp_path: Path) -> None:
    config = changed(tiny_config(), train={"steps": None, "epochs": 0})
    seen: list[Evaluation] = []
    progress: list[tuple[int, int]] = []
    stack = StackTraining(
        config,
        [1, 2],
        tiny_data(),
        CPU,
        ResumePoints(tmp_path),
        events=TrainingEvents(
            on_evaluation=seen.append,
            on_progress=lambda step, steps: progress.append((step, steps)),
        ),
    )
    drawn = {name: value.clone() for name, value in stack.model.state_dict().items()}
    stack.run()
    assert all(torch.equal(value, drawn[name]) for name, value in stack.model.state_dict().items())
    assert [(evaluation.member, evaluation.step, evaluation.epoch) for evaluation in seen] == [
        (0, 0, 0.0),
        (1, 0, 0.0),
    ]
    assert set(seen[0].metrics) == {"valid/loss", "valid/perplexity", "valid/token_accuracy"}
    assert progress == [(0, 0)]
    again = StackTraining(
        config,
        [1, 2],
        tiny_data(),
        CPU,
        ResumePoints(tmp_path),
        events=TrainingEvents(on_evaluation=seen.append),
    )
    again.run()
    assert seen[2].metrics == seen[0].metrics
    assert score_splits(stack, tiny_data(), decoding_limit=8).results(1)[0].metrics["test/loss"] > 0


# -- whole recipes, small ----------------------------------------------------------------------

SMALL = {"d_model": 16, "heads": 2, "layers": 1, "d_ff": 32}
RECIPES: dict[str, tuple[dict[str, Any], int]] = {
    "architecture-en-de": ({"model": SMALL, "train": {"epochs": 1}}, 2),
    "scratch-en-fr": ({}, 1),
    "tatoeba-en-es": (
        {
            "model": SMALL,
            "train": {"epochs": 1},
            "data": {"dataset": "notebook-en-de"},
            "evaluate": {"max_length": 12},
        },
        1,
    ),
    "slides-en-fr": ({"model": SMALL}, 0),
    "by-hand-en-fr": ({}, 1),
}
TRANSLATED = {"test/exact_match", "test/bleu", "test/chrf", "test/exact_match_unpadded"}
FORCED = {
    *(
        f"{split}/{name}"
        for split in ("valid", "test")
        for name in ("loss", "perplexity", "token_accuracy")
    ),
    "test/loss_unpadded",
}


@case_table("name", RECIPES, default=1)
def test_each_notebooks_choices_train_to_the_end(name: str) -> None:
    config = resolve({"recipe": name, **RECIPES[name][0]})
    data = prepare(config.data, cache_root())
    assert find_incompatibility(config, data.record["longest"]) is None
    stack = trained(config, [1, 2], data)
    results, translations, _ = score_splits(
        stack, data, decoding_limit(config, data.longest_target)
    ).results(1)
    assert stack.progress.step == stack.steps == RECIPES[name][1]
    assert stack.active_members == [0, 1]
    wanted = FORCED if name == "architecture-en-de" else FORCED | TRANSLATED
    assert set(results.metrics) == wanted
    assert all(math.isfinite(value) for value in results.metrics.values())
    assert sum(bucket["n"] for bucket in results.buckets) == len(data.splits["test"])
    if wanted == FORCED:
        assert (translations, results.signatures) == (None, {})
        assert translations_table(translations) == "source\treferences\thypothesis\texact\n"


# -- what a probe reads -------------------------------------------------------------------------


def target_tokens(source: str, **raw: Any) -> list[str]:
    """Return the decoder inputs for a source without a given target."""
    config = resolve(raw)
    data = prepare(config.data, cache_root())
    model = StackTraining(config, [1], data, CPU).model
    return list(probe_maps(model, data, source, None, 5)[0].record["target_tokens"])


def test_a_probe_without_a_target_reads_the_runs_translation_or_is_refused() -> None:
    slides = {"source": "I love AI .", "recipe": "slides-en-fr", "model": SMALL}
    assert target_tokens(**slides) == ["<pad>"] * 4
    for decode in ("none", "teacher-forced"):
        with pytest.raises(
            HeadToHeadError, match=rf"\(evaluate\.decode: {decode}\); pass a target$"
        ):
            target_tokens(**slides, evaluate={"decode": decode})
    assert (
        target_tokens("good night", recipe="tatoeba-en-es", **RECIPES["tatoeba-en-es"][0])[0]
        == "<sos>"
    )


# -- incompatible settings --------------------------------------------------------------------


def reason(longest: Mapping[str, int] | None = None, **raw: Any) -> str | None:
    config = resolve({"train": {"epochs": 1}} | raw)
    return find_incompatibility(config, longest or {"source": 9, "target": 11})


ONE_EPOCH = {"epochs": 1, "batch_size": 8}
LEARNED = {
    "encoder": "sinusoidal",
    "decoder": {"name": "learned", "max_length": 12},
    "cross": "none",
}
LONG_SOURCES = {"source": 13, "target": 11}
REASONS: list[tuple[dict[str, Any], str]] = [
    (
        {"data": {"target_boundaries": "none"}},
        "but data.target_boundaries is none; set evaluate.decode: none",
    ),
    (
        {"train": ONE_EPOCH | {"pad_to": 10}},
        "less than the 11 tokens .*; set data.truncate_tokens: 10",
    ),
    (
        {"train": {"epochs": 1, "pad_to": 100}},
        "pad_to 100 requires batches with a fixed number of sentences; set batch_size",
    ),
    (
        {"train": ONE_EPOCH | {"length_buckets": "exact"}},
        "requires batches with a number of tokens; remove batch_size",
    ),
    ({"train": {"epochs": 1, "trainable": []}}, "train.trainable is empty.*; set train.epochs: 0"),
    (
        {
            "train": ONE_EPOCH | {"pad_to": 100},
            "positional": {"name": "learned", "max_length": 64},
        },
        "a source of 100 tokens is longer than the 64 .*; set positional.encoder.max_length to at least 100",
    ),
    (
        {
            "evaluate": {"decode": "non-autoregressive"},
            "positional": LEARNED,
            "longest": LONG_SOURCES,
        },
        "a target of 13 tokens is longer than the 12 .*; set positional.decoder.max_length to at least 13",
    ),
    (
        {"longest": {"source": 3, "target": 1}},
        "no target has a second token.*; use longer targets",
    ),
]


@pytest.mark.parametrize(("raw", "expected"), REASONS)
def test_what_cannot_be_trained_or_decoded_has_a_reason(raw: dict[str, Any], expected: str) -> None:
    assert re.search(expected, reason(**raw) or "")


def test_a_part_whose_targets_have_a_single_token_is_refused() -> None:
    config = tiny_config()
    lengths = {"train": [4, 1], "valid": [1, 2], "test": [3]}
    assert find_part_without_labels(config, lengths) is None
    found = find_part_without_labels(config, lengths | {"valid": [1, 1]})
    assert found == (
        "no target of the part valid has a second token, so it has no label; use longer targets"
    )


def test_what_is_reached_counts_padding_and_empty_targets() -> None:
    longest = {"source": 9, "target": 11}

    def reached(pad_to: str | int = "batch", **train: Any) -> dict[str, int]:
        raw = {"train": {"epochs": 1, "pad_to": pad_to} | train}
        return longest_sequences(resolve(raw), longest)

    assert reached() == longest
    assert reached(batch_size=4) == longest
    assert reached(batch_size=4, pad_to="corpus") == {"source": 11, "target": 11}
    assert reached(batch_size=4, pad_to=30) == {"source": 30, "target": 30}
    assert longest_sequences(resolve({"train": {"epochs": 1}}), {}) == {}


# -- through the command -----------------------------------------------------------------------


def masked(masking: Any) -> RunConfig:
    return changed(
        tiny_config(masking=masking), evaluate={"unpadded": True, "max_length": 4, "test_limit": 4}
    )


@pytest.mark.parametrize(
    ("masking", "evaluations"),
    [("padding-causal", 1), ("causal", 2), ({"name": "window", "width": 2}, 1), ("none", 2)],
)
def test_scores_without_padding_are_computed_only_where_they_can_differ(
    masking: Any, evaluations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    own = evaluate.translate_rows
    monkeypatch.setattr(evaluate, "translate_rows", lambda *given: calls.append(1) or own(*given))
    stack = StackTraining(masked(masking), [1, 2], tiny_data(), torch.device("cpu"))
    metrics = score_splits(stack, tiny_data(), decoding_limit=4).results(1)[0].metrics
    assert len(calls) == evaluations
    equal = metrics["test/loss_unpadded"] == metrics["test/loss"]
    assert equal == (evaluations == 1)
    assert 0 <= metrics["test/exact_match_unpadded"] <= 1


def test_a_member_whose_masks_hide_padding_has_its_padded_scores_in_a_mixed_stack() -> None:
    configs = [masked(masking) for masking in ("padding-causal", "causal")]
    stack = StackTraining(configs[0], [1, 2], tiny_data(), torch.device("cpu"), configs=configs)
    scored = score_splits(stack, tiny_data(), decoding_limit=4)
    hidden, visible = (scored.results(member)[0].metrics for member in range(2))
    assert hidden["test/loss_unpadded"] == hidden["test/loss"]
    assert visible["test/loss_unpadded"] != visible["test/loss"]


def test_the_training_loss_comes_every_fiftieth_of_the_steps_and_changes_no_evaluation() -> None:
    config = tiny_config(train={"batch_size": 8, "steps": 100, "evaluate_every": 25})
    lines: list[MetricLine] = []
    evaluated: list[int] = []

    def add(evaluation: Evaluation) -> None:
        lines.append(MetricLine(evaluation.step, 0.0, evaluation.metrics))

    def evaluate_and_add(evaluation: Evaluation) -> None:
        evaluated.append(evaluation.step)
        add(evaluation)

    stack = StackTraining(
        config,
        [4],
        tiny_data(),
        CPU,
        events=TrainingEvents(on_evaluation=evaluate_and_add, on_loss=add),
    )
    losses: list[float] = []
    update = stack.update

    def recorded(*batch: Any) -> None:
        before = float(stack.loss_sums[0])
        update(*batch)
        losses.append(float(stack.loss_sums[0]) - before)

    stack.update = recorded  # type: ignore[method-assign]
    stack.run()
    assert evaluated == [25, 50, 75, 100]
    assert [line.step for line in lines] == sorted({*range(2, 101, 2), *evaluated})
    by_step = {line.step: line.values["train/loss"] for line in lines}
    assert by_step[24] == pytest.approx(np.mean(losses[22:24]), rel=1e-9)
    assert by_step[25] == pytest.approx(losses[24], rel=1e-9)
    for end in evaluated:
        expected = np.mean(losses[end - 25 : end])
        assert training_loss(lines, end, 25) == pytest.approx(expected, rel=1e-9)
    assert training_loss(lines, None, 25) == training_loss(lines, 100, 25)
    assert training_loss([], None, 25) is None
    before_first_loss = [MetricLine(10, 0.0, {"train/loss": 1.0})]
    assert training_loss(before_first_loss, 5, 25) is None


def _trained_with_events(
    evaluate_at_tenths: bool, broken_step: int | None = None
) -> tuple[StackTraining, list[int], list[MetricLine]]:
    """Train 40 steps, of which ten validations would cost 6 %; return the evaluated steps and the training losses."""
    config = tiny_config(train={"batch_size": 8, "steps": 40})
    evaluated: list[int] = []
    lines: list[MetricLine] = []

    def add(evaluation: Evaluation) -> None:
        losses = {"train/loss": evaluation.metrics["train/loss"]}
        lines.append(MetricLine(evaluation.step, 0.0, losses))

    def evaluate_and_add(evaluation: Evaluation) -> None:
        evaluated.append(evaluation.step)
        add(evaluation)

    events = TrainingEvents(on_evaluation=evaluate_and_add, on_loss=add)
    stack = StackTraining(config, [4], tiny_data(), CPU, events=events)
    if evaluate_at_tenths:
        stack.evaluate_every = 4
    update = stack.update

    def breaking(*batch: Any) -> None:
        update(*batch)
        if stack.progress.step + 1 == broken_step:
            stack.loss_sums += math.nan

    stack.update = breaking  # type: ignore[method-assign]
    stack.run()
    return stack, evaluated, lines


def test_the_number_of_validations_changes_neither_weights_nor_training_losses() -> None:
    five, at_fifths, losses = _trained_with_events(evaluate_at_tenths=False)
    ten, at_tenths, expected = _trained_with_events(evaluate_at_tenths=True)
    assert at_fifths == [8, 16, 24, 32, 40]
    assert at_tenths == list(range(4, 41, 4))
    assert losses == expected
    for line in (None, 40, 36):
        assert training_loss(losses, line, five.average_every) == training_loss(expected, line, 4)
    mean = np.mean([line.values["train/loss"] for line in losses[-4:]])
    assert training_loss(losses, None, five.average_every) == pytest.approx(mean, rel=1e-12)
    for name, weight in ten.model.state_dict().items():
        assert torch.equal(five.model.state_dict()[name], weight)
    assert torch.equal(five.final_validation().losses, ten.final_validation().losses)


def test_a_loss_that_is_not_finite_ends_a_run_between_two_validations() -> None:
    five, at_fifths, _ = _trained_with_events(evaluate_at_tenths=False, broken_step=10)
    ten, at_tenths, _ = _trained_with_events(evaluate_at_tenths=True, broken_step=10)
    assert at_fifths == [8, 12]
    assert at_tenths == [4, 8, 12]
    assert five.progress.members == ten.progress.members
    assert five.progress.members[0].ended == End.DIVERGED
