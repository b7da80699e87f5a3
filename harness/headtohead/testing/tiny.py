"""Small configurations and a small corpus, for checks that take seconds."""

from __future__ import annotations

from functools import cache
from itertools import cycle, islice
from typing import Any, get_args

from headtohead.config.builder import resolve
from headtohead.data import PreparedData, prepare_corpus
from headtohead.model.geometry import only_length
from headtohead.plugins.dataset import Corpus, Pair
from headtohead.plugins.families import COMPONENTS
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
    *entries: Any,
    train: dict[str, Any] | None = None,
    quirks: dict[str, Any] | None = None,
    **fields: Any,
) -> RunConfig:
    """Return a small variant: width 16, 4 heads, 1 encoder layer, 2 decoder layers, no dropout.

    Args:
        *entries: The positional encoding, the attention style and the masking scheme: each a name, a mapping with
            ``name`` and options, or a mapping by role.
        train: Fields of the section ``train`` that differ from those of ``TRAIN``.
        quirks: Options of quirks by name, the section ``quirks``.
        **fields: Entries by family, and fields of the section ``model`` that differ from those of ``SMALL``. ``norm``
            is an entry, or a position of the norms, the value of ``model.norm``.

    Raises:
        HeadToHeadError: The values are invalid in an experiment file, too.
    """
    raw: dict[str, Any] = dict(zip(COMPONENTS, entries, strict=False))
    model = dict(SMALL)
    positions = get_args(ModelConfig.model_fields["norm"].annotation)
    for name, value in fields.items():
        is_position = name == "norm" and value in positions
        section = raw if name in COMPONENTS and not is_position else model
        section[name] = value
    train = train or {}
    defaults = dict(TRAIN)
    if "batch_size" in train:
        del defaults["batch_tokens"]
    elif "epochs" in train or "tokens" in train:
        del defaults["steps"]
    raw |= {"model": model, "train": defaults | train, "quirks": quirks or {}}
    if model.get("tie_embeddings") == "all":
        raw["data"] = {"vocabulary": {"shared": True}}
    config = resolve(raw)
    if only_length(config) is None:
        return config
    return changed(config, evaluate={"decode": "teacher-forced"})


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
