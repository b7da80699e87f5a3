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
from headtohead.plugins.registry import calling, find_attention
from headtohead.schema.run_config import ModelConfig, RunConfig

SCORES = frozenset({"rotate", "bias", "content_bias", "score", "values"})
"""Mechanisms that act inside attention, not on its inputs."""


def find_geometry(config: RunConfig, role: str, layer: int = 0) -> Geometry:
    """Return the head geometry of the attention of a layer in ``role``.

    Raises:
        HeadToHeadError: If the style is unknown, its sizes are inconsistent with the model, or a plugin fails when it
            returns them.
    """
    chosen = config.entry_of_layer("attention", role, layer)
    style = find_attention(chosen.name)
    return geometry_of(style, chosen.options, config.model)


def geometry_of(style: type[Attention], options: Options, model: ModelConfig) -> Geometry:
    """Return the head geometry of a style, checked.

    Raises:
        HeadToHeadError: If the style refuses the sizes of the model, or returns no ``Geometry``, one without heads, or
            one whose ``kv_heads`` do not divide its heads.
        PluginError: If ``geometry`` of a plugin raises another error.
    """
    with calling(style):
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

    If the styles of several layers have one, it is that of the first.

    Raises:
        HeadToHeadError: If a style of the decoder is unknown, or ``only_length`` of a plugin fails.
    """
    for entry in config.attention.decoder.pattern:
        style = find_attention(entry.name)
        with calling(style):
            length = style.only_length(entry.options, config.model)
        if length is not None:
            return length
    return None


def incompatibility(
    encoding: type[Positional],
    mechanisms: frozenset[str],
    style: type[Attention],
    geometry: Geometry,
    role: str,
) -> str | None:
    """Return why an encoding with these mechanisms is incompatible with a style, or None.

    The reason starts with the name of the encoding. The first that applies is returned.

    Args:
        encoding: The class of the encoding.
        mechanisms: The hooks by which it acts, from `mechanisms_of`.
        style: The class of the attention style.
        geometry: The heads of the style.
        role: ``"encoder"``, ``"decoder"`` or ``"cross"``.
    """
    reason = None
    if role == "cross":
        reason = _refusal_in_cross_attention(mechanisms)
    if reason is None:
        reason = _refusal_by_style(mechanisms, style, geometry)
    return None if reason is None else f"{encoding.entry_name} {reason}"


def _refusal_in_cross_attention(mechanisms: frozenset[str]) -> str | None:
    """Return why an encoding with these mechanisms cannot act in cross-attention, or None."""
    if "embed" in mechanisms:
        return "is added to embeddings, and cross-attention has no embeddings; use 'none'"
    if "content_bias" in mechanisms:
        return "depends on the tokens between two positions of a sentence, and cross-attention has two; use 'none'"
    if "draw" in mechanisms:
        return "samples positions of a single sentence, and cross-attention has two; use 'none'"
    return None


def _refusal_by_style(
    mechanisms: frozenset[str], style: type[Attention], geometry: Geometry
) -> str | None:
    """Return the first reason why a style refuses an encoding with these mechanisms in any role, or None."""
    name = f"{style.entry_name} attention"
    if not style.projects and mechanisms & SCORES:
        return (
            f"acts on queries, keys or scores, and {name} projects none; use an encoding that is added to embeddings, "
            "or 'none'"
        )
    if not geometry.key_width and mechanisms & {"rotate", "score"}:
        return (
            f"acts on queries, and {name} has none; use an encoding that is added to embeddings or to scores, or "
            "'none'"
        )
    if style.position_dependent and "draw" in mechanisms:
        return (
            f"samples positions in training, and the scores of {name} depend on actual positions; use an encoding "
            "without sampled positions"
        )
    for mechanism in sorted(mechanisms & set(style.unsupported)):
        return f"{style.unsupported[mechanism]}; use an encoding that is added to embeddings, or 'none'"
    return None


class VocabSizes(NamedTuple):
    """Rows of the embedding tables, at least the sizes of the vocabularies; more rows belong to no token."""

    source: int
    target: int


def vocab_sizes(config: RunConfig, *words: int) -> VocabSizes:
    """Return the rows of both tables for vocabularies of these sizes; with ``tie_embeddings: embeddings``, the larger.

    They are at least ``model.min_vocab_size``.
    """
    source, target = (max(size, config.model.min_vocab_size or 0) for size in words)
    if config.model.tie_embeddings == "embeddings":
        source = target = max(source, target)
    return VocabSizes(source, target)


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
        """Return why sentences or batches of a configuration exceed the maximum, or None.

        Args:
            config: A resolved configuration. For rows, its batch sizes count, of training and evaluation; a batch by
                tokens may have as many rows as tokens.
            longest: Tokens of the longest sequence by side; a side that is missing exceeds nothing.
        """
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
                sequence = side if "encoder" in config.roles else "source with its target"
                return (
                    f"a {sequence} of {tokens} tokens is longer than the {self.most} positions of "
                    f"{self.name}; {self._fix(tokens)}"
                )
        return None

    def check(self, length: int, rows: int) -> None:
        """Raise if a forward pass exceeds the maximum of what it counts: its length in positions, or its batch rows.

        Raises:
            HeadToHeadError: With the remedy, if the number is larger than the maximum.
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
    """Return the maximum number of positions of an entry, or of rows for an encoding by row; None if it has none.

    The option that raises the maximum is the first whole number whose increase by 1 increases it by 1; the bound has
    none if there is no such option. The increased options are not validated, so ``limit`` of an entry must accept them.

    Args:
        part: The class of the entry.
        options: Its options, which are valid.
        family: Its family, for the path of the option.
        role: The role that it acts in.

    Raises:
        HeadToHeadError: If ``limit`` of a plugin fails.
    """
    with calling(part):
        most = part.limit(options)
    if most is None:
        return None
    raising_field = None
    for name, value in options:
        if type(value) is not int:
            continue
        increased = options.model_copy(update={name: value + 1})
        with calling(part):
            limit = part.limit(increased)
        if limit == most + 1:
            raising_field = f"{family}.{role}.{name}"
            break
    counts = "rows" if issubclass(part, Positional) and part.by_row else "positions"
    return Bound(part.entry_name, role, most, counts, raising_field)
