"""Sizes and maximum lengths of a configuration's model, and the compatibility of its encodings and styles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from headtohead.errors import HeadToHeadError
from headtohead.plugins.attention import Attention
from headtohead.plugins.component import Component, Geometry
from headtohead.plugins.entry import Options
from headtohead.plugins.positional import Positional
from headtohead.plugins.registry import find_attention
from headtohead.schema.run_config import ModelConfig, RunConfig

SCORES = frozenset({"rotate", "bias", "content_bias", "score", "values"})
"""Mechanisms that act inside attention, not on its inputs."""


def find_geometry(config: RunConfig, role: str, layer: int = 0) -> Geometry:
    """Return the head geometry of the attention of a layer in ``role``.

    Raises:
        HeadToHeadError: If the style is unknown or its sizes are inconsistent with the model.
    """
    chosen = config.entry_of_layer("attention", role, layer)
    style = find_attention(chosen.name)
    return geometry_of(style, chosen.options, config.model)


def geometry_of(style: type[Attention], options: Options, model: ModelConfig) -> Geometry:
    """Return the head geometry of a style.

    Raises:
        HeadToHeadError: If its sizes are inconsistent with the model, or it returns no consistent ``Geometry``.
    """
    geometry = style.geometry(options, model)
    if not isinstance(geometry, Geometry):
        raise HeadToHeadError(
            f"{style.__name__}.geometry returned {type(geometry).__name__}; return a headtohead.plugin.Geometry"
        )
    if min(geometry.heads, geometry.kv_heads) < 1 or geometry.heads % geometry.kv_heads:
        raise HeadToHeadError(
            f"{style.__name__}.geometry returned {geometry.heads} heads and {geometry.kv_heads} key and value heads; "
            "return kv_heads that divide heads"
        )
    return geometry


def only_length(config: RunConfig) -> int | None:
    """Return the only number of target tokens that the decoder supports, or None for any.

    Raises:
        HeadToHeadError: If the style of the decoder is unknown.
    """
    pattern = [
        (find_attention(entry.name), entry.options) for entry in config.attention.decoder.pattern
    ]
    lengths = (style.only_length(options, config.model) for style, options in pattern)
    return next((length for length in lengths if length is not None), None)


def incompatibility(
    encoding: type[Positional],
    mechanisms: frozenset[str],
    style: type[Attention],
    geometry: Geometry,
    role: str,
) -> str | None:
    """Return why an encoding with these mechanisms is incompatible with a style, or None."""
    name, draws = f"{style.entry_name} attention", "draw" in mechanisms
    refused = {
        "is added to embeddings, and cross-attention has no embeddings; use 'none'": role == "cross"
        and "embed" in mechanisms,
        "depends on the tokens between two positions of a sentence, and cross-attention has two; use 'none'": role
        == "cross"
        and "content_bias" in mechanisms,
        "samples positions of a single sentence, and cross-attention has two; use 'none'": role
        == "cross"
        and draws,
        f"acts on queries, keys or scores, and {name} projects none; use an encoding that is added to embeddings, or "
        "'none'": not style.projects and mechanisms & SCORES,
        f"acts on queries, and {name} has none; use an encoding that is added to embeddings or to scores, or "
        "'none'": not geometry.key_width and mechanisms & {"rotate", "score"},
        f"samples positions in training, and the scores of {name} depend on actual positions; use an encoding without "
        "sampled positions": style.position_dependent and draws,
    } | {
        f"{style.unsupported[mechanism]}; use an encoding that is added to embeddings, or 'none'": True
        for mechanism in sorted(mechanisms & set(style.unsupported))
    }
    return next(
        (f"{encoding.entry_name} {reason}" for reason, applies in refused.items() if applies), None
    )


class VocabSizes(NamedTuple):
    """Rows of the embedding tables, at least the sizes of the vocabularies; more rows belong to no token."""

    source: int
    target: int


def vocab_sizes(config: RunConfig, *words: int) -> VocabSizes:
    """Return the rows of both tables for vocabularies of these sizes; with ``tie_embeddings: embeddings``, the larger.

    They are at least ``model.min_vocab_size``.
    """
    rows = [max(size, config.model.min_vocab_size or 0) for size in words]
    return VocabSizes(*([max(rows)] * 2 if config.model.tie_embeddings == "embeddings" else rows))


SIDES: Mapping[str, tuple[str, ...]] = {
    "encoder": ("source",),
    "decoder": ("target",),
    "cross": ("source", "target"),
}
"""Sides of the positions that an entry of a role receives."""


@dataclass(frozen=True)
class Bound:
    """The maximum number of positions, or batch rows, of an entry in a role.

    Args:
        name: Name of the entry.
        role: ``"encoder"``, ``"decoder"`` or ``"cross"``.
        most: The maximum.
        counts: ``"positions"`` or ``"rows"``.
        option: Configuration field that raises the maximum, such as ``positional.encoder.max_length``;
            None if the entry has no such option.
    """

    name: str
    role: str
    most: int
    counts: str
    option: str | None

    def reason(self, config: RunConfig, longest: Mapping[str, int]) -> str | None:
        """Return why sentences or batches of a configuration exceed the maximum, or None."""
        if self.counts == "rows":
            rows = max(
                config.train.batch_size or config.train.batch_tokens, config.evaluate.batch_size
            )
            if rows <= self.most:
                return None
            return (
                f"{self.name} supports {self.most} batch rows, but a batch may have {rows} sentences; set "
                f"train.batch_size and evaluate.batch_size to at most {self.most}"
            )
        for side in SIDES[self.role]:
            tokens = longest.get(side, 0)
            if tokens > self.most:
                side = side if "encoder" in config.roles else "source with its target"
                return (
                    f"a {side} of {tokens} tokens is longer than the {self.most} positions of "
                    f"{self.name}; {self._fix(tokens)}"
                )
        return None

    def check(self, length: int, rows: int) -> None:
        """Check the length and the batch rows of a forward pass.

        Raises:
            HeadToHeadError: If they exceed the maximum.
        """
        number = rows if self.counts == "rows" else length
        if number > self.most:
            unit = self.counts.removesuffix("s")
            raise HeadToHeadError(
                f"{unit} {number} is beyond the {self.most} {self.counts} of {self.name}; {self._fix(number)}"
            )

    def _fix(self, needed: int) -> str:
        if self.option is None:
            return f"use sentences of at most {self.most} tokens"
        return f"set {self.option} to at least {needed}"


def find_bound(part: type[Component], options: Options, family: str, role: str) -> Bound | None:
    """Return the maximum length of an entry with these options, or None if it has none."""
    most = part.limit(options)
    if most is None:
        return None
    by_row = issubclass(part, Positional) and part.by_row
    fields = (
        f"{family}.{role}.{name}"
        for name, value in options
        if type(value) is int
        and part.limit(options.model_copy(update={name: value + 1})) == most + 1
    )
    return Bound(part.entry_name, role, most, "rows" if by_row else "positions", next(fields, None))
