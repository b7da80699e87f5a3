"""The table of choices: one row for each choice in which the notebooks differ, in plain words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from headtohead.config.labels import label_at, text
from headtohead.plugins.registry import Registry
from headtohead.schema.run_config import RunConfig
from headtohead.storage.metrics import counted
from headtohead_notebooks.page.descriptions import label
from headtohead_notebooks.page.numbers import plain

SIZES = ("data", "d_model / heads / layers / d_ff", "epochs, batch", "optimiser", "letters")
"""Rows in which nearly all notebooks differ."""


@dataclass(frozen=True)
class ChoiceRow:
    """One row of the table, with a value for each notebook."""

    name: str
    values: tuple[str, ...]

    def is_unique(self, index: int) -> bool:
        """Return whether no other notebook has the same value."""
        return Counter(self.values)[self.values[index]] == 1


def choice_rows(configs: Sequence[RunConfig], data: Sequence[str], registry: Registry) -> tuple[ChoiceRow, ...]:
    """Return the rows of the table.

    Args:
        configs: The configuration of each notebook.
        data: The description of each notebook's data.
        registry: The registry that labels the entries.
    """
    columns = [
        {"data": description, **describe(config, registry)} for config, description in zip(configs, data, strict=True)
    ]
    return tuple(ChoiceRow(name, tuple(column[name] for column in columns)) for name in columns[0])


def unique_choices(rows: Sequence[ChoiceRow], index: int) -> list[tuple[str, str]]:
    """Return the choices that no other notebook makes, without sizes."""
    return [(row.name, row.values[index]) for row in rows if row.is_unique(index) and row.name not in SIZES]


def describe(config: RunConfig, registry: Registry) -> dict[str, str]:
    """Return the choices of a configuration by the name of their row, in the order of a forward pass."""
    data, model, quirks = config.data, config.model, config.quirks

    def entry(family: str, role: str) -> str:
        return label(family, label_at(config, (family, role), registry))

    source, target = (label(f"{side}_boundaries", getattr(data, f"{side}_boundaries")) for side in ("source", "target"))
    encoder, decoder = entry("attention", "encoder"), entry("attention", "decoder")
    masks_embeddings = "embedding-" in config.attention.decoder.name
    has_cross = quirks.cross_attention_memory == "encoder"
    max_length, decode = config.evaluate.max_length, label("decode", config.evaluate.decode)
    return {
        "letters": label("normalise", data.normalise),
        "vocabulary": f"{label('ids', data.vocabulary.ids)}; {label('unknown', data.vocabulary.unknown)}",
        "boundary tokens": f"both sides: {source}" if source == target else f"source: {source}; target: {target}",
        "padding": _padding(config),
        "embedding scale": {"one": "1", "sqrt-d_model": "√d_model"}[model.embedding_scale],
        "positions": entry("positional", "encoder"),
        "dropout": _dropout(config),
        "attention": encoder if encoder == decoder else f"encoder: {encoder}; decoder: {decoder}",
        "memory of the decoder's second attention": label("cross_attention_memory", quirks.cross_attention_memory),
        "d_model / heads / layers / d_ff": _sizes(config),
        "feed-forward": _feed_forward(config),
        "LayerNorm": {"pre": "before each block", "post": "after each block"}[model.norm]
        + (", and a final one on encoder and decoder" if model.final_norm else ""),
        "masked in the encoder": entry("masking", "encoder"),
        "masked in the decoder": entry("masking", "decoder"),
        "masked in cross-attention": entry("masking", "cross") if has_cross else "there is no cross-attention",
        "mask value": f"{model.mask_value} on {'embeddings' if masks_embeddings else 'scores'}",
        "embedding tables": _embedding_tables(config),
        "loss": _loss(config),
        "optimiser": _optimiser(config),
        "trained": _trained(config),
        "epochs, batch": _training_length(config),
        "decoding": f"{decode}, at most {max_length}" if max_length else decode,
    }


def _padding(config: RunConfig) -> str:
    pad_to, limit = config.quirks.pad_to, config.data.truncate_tokens
    if config.train.batch_size == 1:
        return "none: one sentence"
    lengths = {"batch": "to the longest of the batch", "corpus": "to the longest of the data"}
    padding = lengths.get(str(pad_to), f"always to {pad_to} tokens")
    return padding if limit is None or limit == pad_to else f"{padding}, truncated to {limit}"


def _dropout(config: RunConfig) -> str:
    model = config.model
    rates = {
        "after the embedding": model.dropout_embedding,
        "on attention weights": model.dropout_attention,
        "inside the feed-forward": model.dropout_ffn,
        "on residual branches": model.dropout_residual,
    }
    return "; ".join(f"{text(rate)} {site}" for site, rate in rates.items() if rate) or "none"


def _sizes(config: RunConfig) -> str:
    model = config.model
    layers = dict.fromkeys((model.encoder_layers, model.decoder_layers))
    return f"{model.d_model} / {model.heads} / {'+'.join(map(str, layers))} / {model.d_ff}"


def _feed_forward(config: RunConfig) -> str:
    parts = [{"relu": "ReLU", "gelu": "GELU"}[config.model.activation]]
    if config.quirks.shared_modules:
        parts.append("one feed-forward and one LayerNorm for the whole model")
    if config.quirks.decoder_feed_forward == "after-each":
        parts.append("also between the decoder's two attentions")
    return "; ".join(parts)


def _embedding_tables(config: RunConfig) -> str:
    if config.model.tie_embeddings == "embeddings":
        return "one table for both languages"
    rows = config.quirks.min_vocab_size
    return f"a table for each language, {rows:,} rows" if rows else "a table for each language"


def _loss(config: RunConfig) -> str:
    if config.train.epochs == 0:
        return "none"
    shifted = config.quirks.shift_targets
    return f"cross-entropy, {'shifted by one' if shifted else 'not shifted: each word predicts itself'}"


def _optimiser(config: RunConfig) -> str:
    train = config.train
    if train.epochs == 0:
        return "none"
    betas = ", ".join(text(beta) for beta in train.betas)
    name = {"adam": "Adam", "adamw": "AdamW"}[train.optimizer]
    return f"{name} {plain(train.lr)}, betas ({betas}), eps {plain(train.eps)}"


def _trained(config: RunConfig) -> str:
    if config.train.epochs == 0:
        return "nothing"
    trainable = config.quirks.trainable
    return "all" if trainable is None else "only " + ", ".join(label("trainable", part) for part in trainable)


def _training_length(config: RunConfig) -> str:
    train = config.train
    if train.epochs == 0:
        return "never trained"
    epochs = f"{text(train.epochs)} epoch{'s' * (train.epochs != 1)}"
    return f"{counted(train.steps, 'step') if train.steps else epochs}, batches of {train.batch_size}"
