"""The stored values per example have the scores of ``results.json`` as their means, for every task."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headtohead.analysis import example_values as module
from headtohead.analysis.example_values import ExampleValues, example_values
from headtohead.config.builder import resolve
from headtohead.data import cache_root, prepare
from headtohead.data.metrics import LOG_ERROR
from headtohead.schema.metric import LOSS, UNPADDED
from headtohead.storage.examples import SplitExamples, read_examples, write_examples
from headtohead.storage.frames import Frames, load_frames
from headtohead.storage.metrics import find
from headtohead.storage.run import EXAMPLES
from headtohead.training.loop import StackTraining
from headtohead.training.results import MemberResults, score_splits
from made.fake_study import record_checksums
from made.study import TINY, Study

CPU = torch.device("cpu")
MODEL = {"d_model": 8, "heads": 2, "layers": 1, "d_ff": 16}
WORDS = "To be, or not to be:\nthat is the question. Whether 'tis nobler\nin the mind to suffer\n"


def trained(raw: Mapping[str, Any]) -> tuple[StackTraining, Any]:
    """Train a stack of two seeds, and return it with its data."""
    config = resolve({"model": MODEL, **raw})
    data = prepare(config.data, cache_root())
    stack = StackTraining(config, [1, 2], data, CPU)
    stack.run()
    return stack, data


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text(WORDS * 60, encoding="utf-8")
    return str(path)


TRAIN = {"steps": 12, "batch_tokens": 256, "lr": 0.01, "evaluate_every": 4}
DECODER = MODEL | {"architecture": "decoder-only"}
TASKS: dict[str, dict[str, Any]] = {
    "translation": {"data": {"dataset": "toy-grammar", "size": 600}, "train": TRAIN},
    "translation-of-a-sample": {
        "data": {"dataset": "toy-grammar", "size": 600},
        "train": TRAIN,
        "evaluate": {"test_limit": 11},
    },
    "translation-decoder-only": {
        "data": {"dataset": "toy-grammar", "size": 600, "vocabulary": {"shared": True}},
        "model": DECODER,
        "train": TRAIN,
    },
    "labelled-sequences": {"data": {"dataset": "parity", "size": 400}, "train": TRAIN},
    "text": {"data": {"dataset": "text", "block": 16}, "train": TRAIN},
    "early-stopping": {
        "data": {"dataset": "toy-grammar", "size": 200},
        "train": TRAIN
        | {"lr": 0.3, "schedule": "constant", "steps": 60, "early_stopping": {"patience": 1}},
    },
}


def means(results: MemberResults) -> Iterator[tuple[str, float]]:
    """Yield the name of each stored metric, and the score of its counts by group."""
    for split, examples in results.examples.items():
        for name in results.record.metrics:
            if name.startswith(f"{split}/") and not name.endswith(UNPADDED):
                metric = find(name)
                assert metric is not None
                assert metric.pool is not None
                counts = examples.counts_of(metric)
                assert counts is not None, name
                yield name, metric.pool(counts.sum(axis=0).tolist())


@pytest.mark.parametrize("task", TASKS)
def test_the_pooled_values_of_the_examples_are_every_score_of_the_record(
    task: str, text: str, tmp_path: Path
) -> None:
    raw = dict(TASKS[task])
    if task == "text":
        raw["data"] = raw["data"] | {"file": text}
    stack, data = trained(raw)
    scored = score_splits(stack, data, 8)
    for member in (0, 1):
        of_member = scored.results(member)
        scores = dict(means(of_member))
        stored = of_member.record.metrics
        assert scores.keys() == {name for name in stored if not name.endswith(UNPADDED)}
        for name, score in scores.items():
            assert score == pytest.approx(stored[name], rel=1e-9, abs=1e-12), name
        assert {"valid/loss", "test/loss", "test/token_accuracy"} <= scores.keys()
        for split, examples in of_member.examples.items():
            assert examples.groups.tolist() == data.splits[split].groups
            assert len(examples.losses) == len(data.splits[split])
    assert not np.array_equal(
        scored.results(0).examples["test"].losses, scored.results(1).examples["test"].losses
    )


def test_the_validation_values_of_early_stopping_are_those_of_the_best_weights() -> None:
    stack, data = trained(TASKS["early-stopping"])
    scored = score_splits(stack, data, 8)
    for index, member in enumerate(stack.progress.members):
        assert member.best_step is not None
        assert member.best_step < stack.steps, "the learning rate does not make later weights worse"
        assert scored.results(index).record.metrics["valid/loss"] == member.best


def test_a_training_that_is_resumed_at_its_end_evaluates_the_validation_part_again() -> None:
    stack, data = trained(TASKS["translation"])
    before = score_splits(stack, data, 8).results(0).record.metrics
    stack._last_validation = None  # a resume point has no values per example
    after = score_splits(stack, data, 8).results(0).record.metrics
    assert after == before


# -- values of a study ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def study(
    tmp_path_factory: pytest.TempPathFactory, h2h_here: Callable[..., Any], no_figures: Any
) -> Path:
    """The folder of a study of two variants and two seeds."""
    folder = tmp_path_factory.mktemp("study")
    base = TINY["base"] | {"data": {"dataset": "toy-grammar", "size": 800}}
    base |= {"train": {"steps": 10, "batch_tokens": 256, "evaluate_every": 5}}
    design = [{"product": {"positional": ["sinusoidal", "none"]}}]
    study = Study(folder, cache_root(), h2h_here, TINY | {"base": base, "design": design})
    study.write()
    with no_figures():
        study.run()
    return study.experiment


def loaded(study: Path) -> Frames:
    return load_frames(study)


def values_of(frames: Frames, metric: str, slug: str = "sinusoidal") -> ExampleValues:
    values = example_values(frames, slug, metric)
    assert isinstance(values, ExampleValues), values
    return values


def test_the_values_of_a_text_are_those_of_its_passages(
    tmp_path: Path, h2h_here: Callable[..., Any], no_figures: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"{line} {WORDS[line % 40 : line % 70]}\n" for line in range(2000)]
    (tmp_path / "text.txt").write_text("".join(lines), encoding="utf-8")
    base = TINY["base"] | {"data": {"dataset": "text", "file": "text.txt", "block": 16}}
    base |= {"train": {"steps": 4, "batch_tokens": 256, "evaluate_every": 4}}
    study = Study(tmp_path, cache_root(), h2h_here, TINY | {"base": base})
    study.write()
    with no_figures():
        study.run()
    frames = load_frames(study.experiment)
    slug = frames.baseline
    for metric in ("valid/loss", "test/loss", "test/bits_per_byte"):
        found = values_of(frames, metric, slug)
        assert found.values.shape == (2, 20)
        scores = [*frames.scores(slug, metric).values()]
        np.testing.assert_allclose(found.values.mean(axis=1), scores, rtol=1e-9)
    with monkeypatch.context() as patch:
        patch.setattr(module, "find_metric", lambda metric: None)
        reason = "the dataset of this metric is not loaded; load its plugin with --plugin"
        assert example_values(frames, slug, "test/bits_per_byte") == reason


@pytest.fixture
def restored(study: Path) -> Iterator[Path]:
    """The run of the baseline's first seed; the files of all its runs are restored after the test."""
    paths = [*study.glob(f"sinusoidal-*/{EXAMPLES}"), *study.glob("sinusoidal-*/status.json")]
    content = {path: path.read_bytes() for path in paths}
    yield next(study.glob("sinusoidal-s1-*"))
    for path, of_file in content.items():
        path.write_bytes(of_file)


def rewrite(run: Path, **changes: Callable[[SplitExamples], Any]) -> None:
    """Change fields of the test split of a run's values, and record the checksum."""
    by_split = dict(read_examples(run))
    test = by_split["test"]
    by_split["test"] = replace(test, **{name: change(test) for name, change in changes.items()})
    write_examples(run / EXAMPLES, by_split)
    record_checksums(run)


def test_the_mean_of_the_values_of_a_seed_is_its_score_in_every_metric(study: Path) -> None:
    frames = loaded(study)
    metrics = [
        *(f"{split}/{name}" for split in ("valid", "test") for name in ("loss", "perplexity")),
        "test/token_accuracy",
        "test/exact_match",
        "test/bleu",
        "test/chrf",
        f"test/{LOG_ERROR.name}",
    ]
    for slug, metric in itertools.product(("sinusoidal", "none"), metrics):
        found = values_of(frames, metric, slug)
        scores = frames.scores(slug, metric)
        assert found.seeds == tuple(scores) == (1, 2)
        assert found.values.shape[0] == 2
        assert found.values.shape[1] >= module.MIN_GROUPS
        means = found.values.mean(axis=1)
        np.testing.assert_allclose(means, [*scores.values()], rtol=1e-9, atol=1e-12)
        other = values_of(frames, metric, "none")
        assert found.examples_hash == other.examples_hash


def test_the_value_of_a_mean_over_equal_groups_is_that_of_the_group(
    study: Path, restored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MIN_GROUPS", 2)
    for run in study.glob("sinusoidal-s*"):
        rewrite(run, groups=lambda test: np.arange(len(test.groups)) // 2)
    exact = read_examples(restored)["test"].counts["exact_match"][:, 0]
    values = values_of(loaded(study), "test/exact_match").values[0]
    np.testing.assert_allclose(values, exact.reshape(-1, 2).mean(axis=1), atol=1e-9)


@pytest.mark.parametrize(
    "metric",
    [
        "system/train_seconds",
        "train/loss",
        "attention/cross/entropy",
        "test/loss_unpadded",
        "test/x",
    ],
)
def test_metrics_that_are_no_scores_of_examples_have_no_values(study: Path, metric: str) -> None:
    reason = f"{metric} is not a score of validation or test examples"
    assert example_values(loaded(study), "sinusoidal", metric) == reason


def test_few_groups_many_values_and_other_examples_are_reasons_for_no_values(
    study: Path, restored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = loaded(study)
    with monkeypatch.context() as patch:
        patch.setattr(module, "MAX_VALUES", 90)
        reason = "there are more than 90 values per example"
        assert example_values(frames, "none", "test/loss") == reason
    rewrite(restored, examples_hash=lambda test: "cd" * 32)
    reason = "the runs of a variant have different examples"
    assert example_values(loaded(study), "sinusoidal", "test/loss") == reason
    rewrite(restored, groups=lambda test: test.groups % 19)
    reason = "19 groups of examples, fewer than 20"
    assert example_values(loaded(study), "sinusoidal", "test/loss") == reason
    assert isinstance(example_values(loaded(study), "sinusoidal", "valid/loss"), ExampleValues)


def test_values_that_are_not_the_score_and_a_missing_file_are_reasons_for_no_values(
    study: Path, restored: Path
) -> None:
    rewrite(restored, losses=lambda test: test.losses * (1 + 1e-6))
    reason = "the scores are not those of the stored values per example"
    assert example_values(loaded(study), "sinusoidal", "test/loss") == reason
    assert isinstance(example_values(loaded(study), "none", "test/loss"), ExampleValues)
    (restored / EXAMPLES).unlink()
    record_checksums(restored)
    reason = "a run has no values per example"
    assert example_values(loaded(study), "sinusoidal", "test/loss") == reason


def test_a_score_that_is_not_defined_without_a_group_has_no_values(
    study: Path, restored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_in_the_first(test: SplitExamples) -> Any:
        labels = np.zeros_like(test.num_labels)
        labels[0] = test.num_labels.sum()
        return labels

    rewrite(restored, num_labels=all_in_the_first)
    reason = "the score is not defined without one of the groups of examples"
    assert example_values(loaded(study), "sinusoidal", "test/loss") == reason
    # Python's logarithm of 0 raises a ValueError, which is no ArithmeticError.
    of_labels = replace(LOSS, pool=lambda counts: math.log(counts[1]))
    monkeypatch.setattr(module, "find_metric", lambda name: of_labels)
    assert example_values(loaded(study), "sinusoidal", "test/loss") == reason
