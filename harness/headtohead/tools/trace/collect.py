"""Collect every step of one forward pass of one sentence pair on the explicit path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from headtohead.model.attention import MultiHeadAttention
from headtohead.model.blocks import DecoderLayer, EncoderLayer
from headtohead.model.transformer import Transformer
from headtohead.tools.trace import examples, formulas
from headtohead.tools.trace.examples import Cell
from headtohead.tools.trace.formulas import AttentionFormulas, Description
from headtohead.tools.trace.sentences import Sentences
from headtohead.tools.trace.steps import Array, Step, as_share

HEAD_STEPS = (
    "plain_queries",
    "plain_keys",
    "queries",
    "keys",
    "values",
    "products",
    "bias",
    "unmixed",
    "scores",
    "mask",
    "filled",
    "unmixed_weights",
    "weights",
    "heads",
    "finished",
)
"""Steps of an attention with a matrix per head, in order of computation."""

READING = ("values", "weights", "heads", "finished")
"""Steps of output heads, which may be fewer than the query heads."""

OF_KEYS = ("plain_keys", "keys", "values")
"""Steps with a row per key."""

OF_BOTH = ("products", "bias", "unmixed", "scores", "mask", "filled", "unmixed_weights", "weights")
"""Steps with a column per key."""

MOST_LIKELY = 10
"""Words shown of a large vocabulary."""


@torch.no_grad()
def collect(model: Transformer, sentences: Sentences, member: int = 0) -> tuple[Step, ...]:
    """Return every step of a forward pass.

    Args:
        model: A stack in evaluation mode; one member is traced.
        sentences: The inputs of encoder and decoder.
        member: Index of the member.

    Raises:
        HeadToHeadError: If the model does not accept sentences of these lengths.
    """
    device = next(model.parameters()).device

    def ids_of(ids: Sequence[int]) -> tuple[Tensor, Tensor]:
        row = torch.tensor([list(ids)], device=device).expand(model.members, 1, -1)
        return row, torch.full((model.members, 1), len(ids), device=device)

    source, target = ids_of(sentences.source), ids_of(sentences.target)
    collector = _Collector(model, sentences, member)
    collector.ids("encoder")
    memory = model.encode(*source, collector.observe)
    collector.ids("decoder")
    hidden = model.decode(*target, memory, source[1], collector.observe)
    collector.output(_array(model.project(hidden)[member, 0]))
    return tuple(collector.steps)


@dataclass
class _Collector:
    """Turns the observed tensors of a model into steps."""

    model: Transformer
    sentences: Sentences
    member: int
    steps: list[Step] = field(default_factory=list)
    inside: dict[str, Tensor] = field(default_factory=dict)
    residual: Array = field(default_factory=lambda: np.zeros((1, 1)))
    """The input of the current residual block."""

    @property
    def last(self) -> Array:
        return self.steps[-1].values

    def tokens(self, role: str) -> tuple[str, ...]:
        """Return the tokens of the queries."""
        return self.sentences.source_tokens if role == "encoder" else self.sentences.target_tokens

    def keys(self, role: str) -> tuple[str, ...]:
        """Return the tokens of the keys."""
        reads_source = role == "encoder" or (role == "cross" and self.model.attends_to_source)
        return self.sentences.source_tokens if reads_source else self.sentences.target_tokens

    # -- observations ----------------------------------------------------------------------------

    def ids(self, role: str) -> None:
        """Add the ids of a side."""
        ids = self.sentences.source if role == "encoder" else self.sentences.target
        self.steps.append(Step(f"{role}.ids", np.array(ids), self.tokens(role), says=formulas.EMBEDDING["ids"][1]))

    def observe(self, role: str, layer: int | None, name: str, value: Tensor) -> None:
        """Add an observed tensor of the model."""
        mine = value[self.member]
        if name in HEAD_STEPS or name == "joined":
            self.inside[name] = mine[0] if mine.dim() == 4 else mine
        elif layer is None:
            self._around(role, name, _array(mine))
        elif "." in name:
            self._feed_forward(role, layer, name, _array(mine))
        else:
            self._attention(role, layer, name, _array(mine))

    def output(self, logits: Array) -> None:
        """Add logits, probabilities and the chosen words."""
        words, rows = self.sentences.labels(logits.shape[1]), self.sentences.target_tokens
        shares = as_share(logits.astype(np.float64))
        prominent = tuple(sorted(np.argsort(-shares.max(axis=0))[:MOST_LIKELY].tolist()))
        chosen = logits.argmax(axis=-1)
        remarks = tuple(
            f"{words[index]} ({share[index]:.0%})" for index, share in zip(chosen.tolist(), shares, strict=True)
        )
        tie_embeddings = self.model.lm_head is None
        formula, says = formulas.OUTPUT["logits"]
        described = {
            "logits": ("X E^T" if tie_embeddings else formula, says),
            "probabilities": formulas.OUTPUT["probabilities"],
            "chosen": formulas.OUTPUT["chosen"],
        }
        self.steps += [
            Step("logits", logits, rows, words, *described["logits"], prominent=prominent),
            Step(
                "probabilities",
                shares,
                rows,
                words,
                *described["probabilities"],
                example=_line(examples.share(logits, shares), rows, words),
                prominent=prominent,
            ),
            Step("chosen", chosen, rows, (), *described["chosen"], remarks=remarks),
        ]

    # -- parts -----------------------------------------------------------------------------------

    def _around(self, role: str, name: str, values: Array) -> None:
        """Add a step before or after the layers of a side."""
        if name == "final_norm":
            example = examples.normalised(self.residual, self._eps, values)
            self._add(f"{role}.norm", values, role, formulas.FINAL_NORM, example)
            return
        example = None
        description = formulas.EMBEDDING[name]
        if name == "positions":
            positional = self.model.positionals[role]
            description = (positional.formula(), description[1])  # type: ignore[operator]
        elif name == "scaled":
            factor = self.model.embedding_scale or 1.0
            example = examples.scaled(self.last, factor, values)
        elif name == "sum":
            row = min(1, len(values) - 1)
            example = examples.added(self.steps[-2].values, self.last, values, row)
        self._add(f"{role}.{name}", values, role, description, example)
        self.residual = values

    def _feed_forward(self, role: str, layer: int, name: str, values: Array) -> None:
        part, _, step = name.partition(".")
        formula, says = formulas.FEED_FORWARD[step]
        if step == "inner":
            formula = f"H = {formulas.incoming(self._pre)} W_1 + b_1"
        if step == "activated":
            formula = formulas.ACTIVATIONS[self.model.config.model.activation]
        path = f"{role}.{layer}.{part.replace('_', '-')}"
        example = examples.activated(self.last, values) if step == "activated" else None
        self._block(path, step, role, values, (formula, says), example)

    def _attention(self, role: str, layer: int, name: str, values: Array) -> None:
        stack, part = ("decoder", "cross") if role == "cross" else (role, "self")
        path = f"{stack}.{layer}.{part}"
        attention_formulas = self._formulas(role, layer)
        if name == "output":
            self._heads(path, role, attention_formulas)
            name = "projection"
        self._block(path, name, role, values, attention_formulas.of(name))

    def _block(
        self, path: str, step: str, role: str, values: Array, description: Description, example: Cell | None = None
    ) -> None:
        """Add a step of a residual block and update the residual stream."""
        if step == "norm":
            example = examples.normalised(self.residual, self._eps, values)
        if step == "residual":
            example = examples.added(self.residual, self.last, values)
        self._add(f"{path}.{step}", values, role, description, example)
        if step == "residual" or (step == "norm" and not self._pre):
            self.residual = values

    def _heads(self, path: str, role: str, attention_formulas: AttentionFormulas) -> None:
        """Add the steps inside an attention, head by head."""
        geometry = attention_formulas.part.context.geometry
        if geometry.output_heads == geometry.heads:
            for head in range(geometry.heads):
                self._head(f"{path}.head.{head}", role, attention_formulas, head, HEAD_STEPS)
        else:
            maps = tuple(name for name in HEAD_STEPS if name not in READING)
            for head in range(geometry.heads):
                self._head(f"{path}.map.{head}", role, attention_formulas, head, maps)
            for head in range(geometry.output_heads):
                self._head(f"{path}.head.{head}", role, attention_formulas, head, READING)
        if "joined" in self.inside:
            joined = _array(self.inside["joined"])
            self._add(f"{path}.concatenation", joined, role, attention_formulas.of("concatenation"))
        self.inside = {}

    def _head(
        self, path: str, role: str, attention_formulas: AttentionFormulas, head: int, names: Sequence[str]
    ) -> None:
        geometry = attention_formulas.part.context.geometry
        group = geometry.heads // geometry.kv_heads
        matrices = {
            name: _array(self.inside[name][head // group if name in OF_KEYS else head])
            for name in names
            if name in self.inside and self.inside[name].shape[-1]
        }
        if "scores" in matrices and "mask" not in matrices:
            del matrices["filled"]
        shown = _by_hand(matrices, geometry.scale)
        for name, values in matrices.items():
            step = "output" if name == "heads" else name.replace("_", "-")
            rows = self.keys(role) if name in OF_KEYS else self.tokens(role)
            columns = self.keys(role) if name in OF_BOTH else ()
            formula, says = attention_formulas.of(step)
            example = _line(shown.get(name), rows, columns)
            self.steps.append(Step(f"{path}.{step}", values, rows, columns, formula, says, example))

    # -- helpers ---------------------------------------------------------------------------------

    @property
    def _pre(self) -> bool:
        return self.model.config.model.norm == "pre"

    @property
    def _eps(self) -> float:
        return self.model.config.model.norm_eps

    def _add(self, name: str, values: Array, role: str, description: Description, example: Cell | None = None) -> None:
        rows = self.tokens(role)
        self.steps.append(Step(name, values, rows, (), *description, _line(example, rows, ())))

    def _formulas(self, role: str, layer: int) -> AttentionFormulas:
        config = self.model.config
        masking = config.masking.role(role).name if "mask" in self.inside else None
        part = _part(self.model, role, layer)
        return AttentionFormulas(part, masking, config.model.mask_value, self._pre)


def _part(model: Transformer, role: str, layer: int) -> MultiHeadAttention:
    if role == "encoder":
        encoder = model.encoder[layer]
        assert isinstance(encoder, EncoderLayer)
        return encoder.attention
    decoder = model.decoder[layer]
    assert isinstance(decoder, DecoderLayer)
    return decoder.attention if role == "decoder" else decoder.cross


def _line(cell: Cell | None, rows: Sequence[str], columns: Sequence[str]) -> str:
    return "" if cell is None else cell.line(rows, columns)


def _by_hand(matrices: dict[str, Array], scale: float) -> dict[str, Cell | None]:
    """Return one cell of each step of a head, computed by hand."""
    shown: dict[str, Cell | None] = {}
    total = "unmixed" if "unmixed" in matrices else "scores"
    first = "products" if "products" in matrices else total
    if first in matrices and "queries" in matrices:
        shown[first] = examples.product(matrices["queries"], matrices["keys"], scale, matrices[first])
    if "bias" in matrices:
        last = len(matrices[total]) - 1
        shown[total] = examples.added(matrices["products"], matrices["bias"], matrices[total], last)
    filled = matrices.get("filled", matrices.get("scores"))
    weights = "unmixed_weights" if "unmixed_weights" in matrices else "weights"
    if filled is not None and weights in matrices:
        shown[weights] = (
            examples.share(filled, matrices[weights])
            or examples.ratio(filled, matrices[weights])
            or examples.logistic(filled, matrices[weights])
        )
    if "heads" in matrices:
        shown["heads"] = examples.mixture(matrices["weights"], matrices["values"], matrices["heads"])
    return shown


def _array(value: Tensor) -> Array:
    found: Array = value.detach().cpu().numpy()
    return found
