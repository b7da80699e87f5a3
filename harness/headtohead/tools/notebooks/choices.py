"""A configuration in plain words, one row for each choice that the notebooks make differently."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headtohead.config.labels import label_at, text
from headtohead.plugins.registry import Registry
from headtohead.schema.run_config import RunConfig
from headtohead.tools.notebooks.known import known
from headtohead.tools.notebooks.numbers import plain

SIZES = ("data", "d_model / heads / layers / d_ff", "epochs, batch", "optimiser", "letters")
"""Rows in which every notebook is other than the rest, which tells little of what it is."""


@dataclass(frozen=True)
class Choice:
    """One row of the table: what it is about, and the words of each notebook."""

    name: str
    words: tuple[str, ...]

    def alone(self, place: int) -> bool:
        """Tell whether one notebook's words are those of no other."""
        return Counter(self.words)[self.words[place]] == 1


def choices(configs: Sequence[RunConfig], data: Sequence[str], registry: Registry) -> tuple[Choice, ...]:
    """Return the rows of the table for some configurations side by side.

    Args:
        configs: One of each notebook.
        data: What each reads, in words.
        registry: Where labels of entries come from.
    """
    described = [{"data": words, **describe(config, registry)} for config, words in zip(configs, data, strict=True)]
    return tuple(Choice(name, tuple(one[name] for one in described)) for name in described[0])


def describe(config: RunConfig, registry: Registry) -> dict[str, str]:
    """Return every choice of a configuration in words, by the name of its row."""
    return {name: tell(config, registry) for name, tell in ROWS.items()}


def own(rows: Sequence[Choice], place: int) -> list[tuple[str, str]]:
    """Return the choices that no other notebook makes, sizes left out."""
    return [(row.name, row.words[place]) for row in rows if row.alone(place) and row.name not in SIZES]


def word(kind: str, label: object) -> str:
    """Return the plain words for a value; its own name where there are none."""
    words: Mapping[str, str] = known("words").get(kind, {})
    return words.get(str(label), str(label))


def _text(config: RunConfig, registry: Registry) -> str:
    return word("normalise", config.data.normalise)


def _vocabulary(config: RunConfig, registry: Registry) -> str:
    vocabulary = config.data.vocabulary
    return f"{word('ids', vocabulary.ids)}; {word('unknown', vocabulary.unknown)}"


def _boundaries(config: RunConfig, registry: Registry) -> str:
    source = word("source_boundaries", config.data.source_boundaries)
    target = word("target_boundaries", config.data.target_boundaries)
    return f"both sides: {source}" if source == target else f"source: {source}; target: {target}"


def _padding(config: RunConfig, registry: Registry) -> str:
    train, cut = config.train, config.data.truncate_tokens
    if train.batch_size == 1:
        return "none: one sentence"
    to = {"batch": "to the longest of the batch", "corpus": "to the longest of the data"}.get(
        str(config.quirks.pad_to), f"always to {config.quirks.pad_to} tokens"
    )
    return to if cut is None or str(cut) in to else f"{to}, cut at {cut}"


def _scale(config: RunConfig, registry: Registry) -> str:
    return {"one": "1", "sqrt-d_model": "√d_model"}[config.model.embedding_scale]


def _positions(config: RunConfig, registry: Registry) -> str:
    return word("positional", label_at(config, ("positional", "encoder"), registry))


def _dropouts(config: RunConfig, registry: Registry) -> str:
    model = config.model
    places = {
        "after the embedding": model.dropout_embedding,
        "on attention weights": model.dropout_attention,
        "inside the feed-forward": model.dropout_ffn,
        "on residual branches": model.dropout_residual,
    }
    found = [f"{text(rate)} {place}" for place, rate in places.items() if rate]
    return "; ".join(found) or "none"


def _attention(config: RunConfig, registry: Registry) -> str:
    roles = {
        role: word("attention", label_at(config, ("attention", role), registry)) for role in ("encoder", "decoder")
    }
    if roles["encoder"] == roles["decoder"]:
        return roles["encoder"]
    return f"encoder: {roles['encoder']}; decoder: {roles['decoder']}"


def _second(config: RunConfig, registry: Registry) -> str:
    return word("cross_attention_memory", config.quirks.cross_attention_memory)


def _sizes(config: RunConfig, registry: Registry) -> str:
    model = config.model
    layers = {model.encoder_layers, model.decoder_layers}
    depth = f"{model.encoder_layers}" if len(layers) == 1 else (f"{model.encoder_layers}+{model.decoder_layers}")
    return f"{model.d_model} / {model.heads} / {depth} / {model.d_ff}"


def _feed_forward(config: RunConfig, registry: Registry) -> str:
    model = config.model
    parts = [{"relu": "ReLU", "gelu": "GELU"}[model.activation]]
    if config.quirks.shared_modules:
        parts.append("one feed-forward and one LayerNorm serve every place")
    if config.quirks.decoder_feed_forward == "after-each":
        parts.append("also between the decoder's two attentions")
    return "; ".join(parts)


def _norm(config: RunConfig, registry: Registry) -> str:
    model = config.model
    where = {"pre": "before each branch", "post": "after each branch"}[model.norm]
    return f"{where}, and a last one on each stack" if model.final_norm else where


def _mask(role: str) -> Callable[[RunConfig, Registry], str]:
    def tell(config: RunConfig, registry: Registry) -> str:
        if role == "cross" and config.quirks.cross_attention_memory == "decoder":
            return "there is no cross-attention"
        return word("masking", label_at(config, ("masking", role), registry))

    return tell


def _fill(config: RunConfig, registry: Registry) -> str:
    where = "embeddings" if "embedding-" in config.attention.decoder.name else "scores"
    return f"{config.model.mask_value} on {where}"


def _tables(config: RunConfig, registry: Registry) -> str:
    model = config.model
    if model.tie_embeddings == "embeddings":
        return "one table for both languages"
    rows = config.quirks.min_vocab_size
    return f"a table for each language, {rows:,} rows" if rows else "a table for each language"


def _loss(config: RunConfig, registry: Registry) -> str:
    if config.train.epochs == 0:
        return "none"
    if not config.quirks.shift_targets:
        return "cross-entropy, not shifted: each word predicts itself"
    return "cross-entropy, shifted by one"


def _optimiser(config: RunConfig, registry: Registry) -> str:
    train = config.train
    if train.epochs == 0:
        return "none"
    betas = ", ".join(text(beta) for beta in train.betas)
    name = {"adam": "Adam", "adamw": "AdamW"}[train.optimizer]
    return f"{name} {plain(train.lr)}, betas ({betas}), eps {plain(train.eps)}"


def _trained(config: RunConfig, registry: Registry) -> str:
    if config.train.epochs == 0:
        return "nothing"
    if config.quirks.trainable is None:
        return "all"
    return "only " + ", ".join(word("trainable", part) for part in config.quirks.trainable)


def _length(config: RunConfig, registry: Registry) -> str:
    train = config.train
    if train.epochs == 0:
        return "never trained"
    long = (
        f"{train.steps} step{'s' * (train.steps != 1)}"
        if train.steps
        else (f"{text(train.epochs)} epoch{'s' * (train.epochs != 1)}")
    )
    return f"{long}, batches of {train.batch_size}"


def _decoding(config: RunConfig, registry: Registry) -> str:
    most, how = config.evaluate.max_length, word("decode", config.evaluate.decode)
    return f"{how}, at most {most}" if most else how


ROWS: dict[str, Callable[[RunConfig, Registry], str]] = {
    "letters": _text,
    "vocabulary": _vocabulary,
    "boundary tokens": _boundaries,
    "padding": _padding,
    "embedding scale": _scale,
    "positions": _positions,
    "dropout": _dropouts,
    "attention": _attention,
    "second attention of the decoder reads": _second,
    "d_model / heads / layers / d_ff": _sizes,
    "feed-forward": _feed_forward,
    "LayerNorm": _norm,
    "encoder mask hides": _mask("encoder"),
    "decoder mask hides": _mask("decoder"),
    "cross mask hides": _mask("cross"),
    "masked": _fill,
    "embedding tables": _tables,
    "loss": _loss,
    "optimiser": _optimiser,
    "trained": _trained,
    "epochs, batch": _length,
    "decoding": _decoding,
}
"""The rows of the table, in the order of a forward pass and of its training."""
