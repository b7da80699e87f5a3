"""Small configurations and a small corpus, for checks that take seconds."""

from __future__ import annotations

from functools import cache
from itertools import cycle, islice
from typing import Any, get_args

from headtohead.config.builder import resolve
from headtohead.data import PreparedData, prepare_corpus
from headtohead.model.geometry import only_length
from headtohead.plugins.dataset import Corpus, Pair
from headtohead.schema.run_config import (
    DataConfig,
    ModelConfig,
    RunConfig,
    VocabularyConfig,
    changed,
)

# With heads of width 2, every pairing of coordinates by a rotary encoding would be the same.
SMALL: dict[str, Any] = {
    "d_model": 16,
    "heads": 4,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "d_ff": 12,
    "dropout": 0.0,
}
TRAIN: dict[str, Any] = {
    "steps": 4,
    "batch_tokens": 24,
    "lr": 1e-3,
    "schedule": "constant",
    "precision": "float64",
    "checkpoint_seconds": 1e9,
}


def tiny_config(
    positional: Any = "sinusoidal",
    attention: Any = "split-heads",
    masking: Any = "padding-causal",
    feed_forward: Any = "relu",
    norm: Any = "layernorm",
    train: dict[str, Any] | None = None,
    quirks: dict[str, Any] | None = None,
    **model: Any,
) -> RunConfig:
    """Return a small variant: width 16, 4 heads, 1 encoder layer, 2 decoder layers, no dropout.

    Args:
        positional: A name, a mapping with ``name`` and options, or a mapping by role.
        attention: As ``positional``.
        masking: As ``positional``.
        feed_forward: As ``positional``.
        norm: As ``positional``, or a position of the norms, the value of ``model.norm``.
        train: Fields of the section ``train`` that differ from those of ``TRAIN``.
        quirks: Fields of the section ``quirks``.
        **model: Fields of the section ``model`` that differ from those of ``SMALL``.

    Raises:
        HeadToHeadError: The values are invalid in an experiment file, too.
    """
    if norm in get_args(ModelConfig.model_fields["norm"].annotation):
        model["norm"] = norm
        norm = "layernorm"
    raw: dict[str, Any] = {
        "positional": positional,
        "attention": attention,
        "masking": masking,
        "feed_forward": feed_forward,
        "norm": norm,
        "model": SMALL | model,
        "train": _small_train(train or {}),
        "quirks": quirks or {},
    }
    if model.get("tie_embeddings") == "all":
        raw["data"] = {"vocabulary": {"shared": True}}
    config = resolve(raw)
    if only_length(config) is None:
        return config
    return changed(config, evaluate={"decode": "teacher-forced"})


def _small_train(train: dict[str, Any]) -> dict[str, Any]:
    """Return ``TRAIN`` with other fields, and without the fields of it that exclude these."""
    fields = dict(TRAIN)
    if "batch_size" in train:
        del fields["batch_tokens"]
    elif "epochs" in train or "tokens" in train:
        del fields["steps"]
    return fields | train


@cache
def tiny_data(shared: bool = False, target_words: int | None = None) -> PreparedData:
    """Return 60 pairs of invented words; the target is the reversed source.

    Args:
        shared: Use a single vocabulary for both sides.
        target_words: Number of words of every target, reached by repeating the reversed source.
    """
    words = ["ba", "da", "fa", "ga", "ka", "la", "ma"]
    pairs = []
    for index in range(60):
        first = 3 * index
        step = 1 + index % 5
        length = 1 + index % 6
        source_words = [words[(first + position * step) % 7] for position in range(length)]
        reversed_words = [f"{word}o" for word in reversed(source_words)]
        if target_words is not None:
            reversed_words = list(islice(cycle(reversed_words), target_words))
        source = " ".join(source_words)
        pairs.append(Pair(source, " ".join(reversed_words), source))
    corpus = Corpus(pairs, "public domain", "invented", ("source", "target"))
    config = DataConfig(
        dataset="invented",
        split="row",
        normalise="none",
        valid=6,
        test=6,
        vocabulary=VocabularyConfig(shared=shared),
    )
    return prepare_corpus(corpus, config)
