"""Collect every step of the forward pass of one sentence pair on the explicit path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.special
import torch
from torch import Tensor

from headtohead.model.attention import MultiHeadAttention
from headtohead.model.layers import unshared
from headtohead.model.transformer import Transformer
from headtohead.plugins.component import Geometry
from headtohead_notebooks.trace import examples, formulas
from headtohead_notebooks.trace.formulas import Description, attention_formulas
from headtohead_notebooks.trace.inputs import TraceInputs
from headtohead_notebooks.trace.steps import Array, TraceStep

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

OUTPUT_HEAD_STEPS = ("values", "weights", "heads", "finished")
"""Steps of output heads, which may be fewer than the query heads."""

KEY_ROWS = ("plain_keys", "keys", "values")
"""Steps with a row per key; all others have a row per query."""

KEY_COLUMNS = (
    "products",
    "bias",
    "unmixed",
    "scores",
    "mask",
    "filled",
    "unmixed_weights",
    "weights",
)
"""Steps with a column per key."""

SHOWN_WORDS = 10
"""Words shown of a large vocabulary."""


@torch.no_grad()
def collect(model: Transformer, inputs: TraceInputs, member: int = 0) -> tuple[TraceStep, ...]:
    """Return every step of a forward pass.

    Args:
        model: A stack in evaluation mode.
        inputs: The inputs of encoder and decoder.
        member: Index of the member that is traced.

    Raises:
        HeadToHeadError: If the model does not support sentences of these lengths.
    """
    device = next(model.parameters()).device

    def batch(ids: Sequence[int]) -> tuple[Tensor, Tensor]:
        row = torch.tensor([list(ids)], dtype=torch.long, device=device).expand(
            model.members, 1, -1
        )
        return row, torch.full((model.members, 1), len(ids), device=device)

    source, target = batch(inputs.source), batch(inputs.target)
    collector = _Collector(model, inputs, member)
    if "encoder" in model.roles:
        collector.add_ids("encoder")
        memory = model.encode(*source, collector.observe)
        collector.add_ids("decoder")
        hidden = model.decode(*target, memory, source[1], collector.observe)
    else:
        collector.add_ids("decoder")
        hidden = model.hidden(model.batch_of(*source, *target), collector.observe)
    collector.add_output(_array(model.project(hidden)[member, 0]))
    return tuple(collector.steps)


@dataclass
class _Collector:
    """Turns the observed tensors of one member into steps."""

    model: Transformer
    inputs: TraceInputs
    member: int
    steps: list[TraceStep] = field(default_factory=list)
    head_tensors: dict[str, Tensor] = field(default_factory=dict)
    """Observed tensors of the current attention, ``[head, row, column]``."""

    def add_ids(self, role: str) -> None:
        ids = self.inputs.source if role == "encoder" else self._decoder_ids
        meaning = formulas.EMBEDDING["ids"][1]
        self.steps.append(
            TraceStep(f"{role}.ids", np.array(ids), self._query_tokens(role), meaning=meaning)
        )

    def observe(self, role: str, layer: int | None, name: str, value: Tensor) -> None:
        """Add an observed tensor: ``[member, row, column]``, or ``[member, batch, head, row, column]``."""
        tensor = value[self.member]
        if name in HEAD_STEPS or name == "joined":
            self.head_tensors[name] = tensor[0] if tensor.dim() == 4 else tensor
        elif layer is None:
            self._add_outside_layers(role, name, _array(tensor))
        elif "." in name:
            self._add_feed_forward(role, layer, name, _array(tensor))
        else:
            self._add_attention(role, layer, name, _array(tensor))

    def add_output(self, logits: Array) -> None:
        """Add logits, probabilities and predicted words."""
        words, rows = self.inputs.labels(logits.shape[1]), self.inputs.target_tokens
        probabilities = scipy.special.softmax(logits.astype(np.float64), axis=-1)
        prominent = tuple(sorted(np.argsort(-probabilities.max(axis=0))[:SHOWN_WORDS].tolist()))
        predicted = logits.argmax(axis=-1)
        remarks = tuple(
            f"{words[index]} ({row[index]:.0%})"
            for index, row in zip(predicted.tolist(), probabilities, strict=True)
        )
        formula, meaning = formulas.OUTPUT["logits"]
        if self.model.lm_head is None:
            formula = "X E^T"
        else:
            formula = formulas.with_bias(formula, "b", self.model.lm_head.bias is not None)
        example = _line(examples.softmax_weight(logits, probabilities), rows, words)
        self.steps += [
            TraceStep("logits", logits, rows, words, formula, meaning, prominent=prominent),
            TraceStep(
                "probabilities",
                probabilities,
                rows,
                words,
                *formulas.OUTPUT["probabilities"],
                example=example,
                prominent=prominent,
            ),
            TraceStep("chosen", predicted, rows, (), *formulas.OUTPUT["chosen"], remarks=remarks),
        ]

    # -- parts of the model ----------------------------------------------------------------------

    def _add_outside_layers(self, role: str, name: str, values: Array) -> None:
        """Add a step before or after the layers of a side."""
        if name == "final_norm":
            self._add(f"{role}.norm", values, role, (self._norm_formula(role), formulas.FINAL_NORM))
            return
        formula, meaning = formulas.EMBEDDING[name]
        if name == "positions":
            formula = self.model.positionals[role].formula()  # type: ignore[operator]
        elif name == "mixed":
            stack = self.model.encoder if role == "encoder" else self.model.decoder
            formula = stack[0].attention.style.formula()  # type: ignore[operator, union-attr]
        self._add(f"{role}.{name}", values, role, (formula, meaning))

    def _add_feed_forward(self, role: str, layer: int, name: str, values: Array) -> None:
        part, _, step = name.partition(".")
        formula, meaning = formulas.FEED_FORWARD[step]
        stack = self.model.encoder if role == "encoder" else self.model.decoder
        entry = unshared(stack[layer].feed_forward).entry  # a layer's networks have the same entry
        number = {"inner": 1, "output": 2, "gate": 3}.get(step)
        if step in ("inner", "gate"):
            formula = formula.replace("X", formulas.block_input(self._pre_norm))
        if step == "output" and entry.gated:
            formula = formula.replace("f(H)", "(f(H) ∘ G)")
        if number:
            formula = formulas.with_bias(formula, f"b_{number}", self.model.config.model.bias)
        if step == "activated":
            formula = entry.formula()
        path = f"{role}.{layer}.{part.replace('_', '-')}"
        self._add_block_step(path, step, role, values, (formula, meaning))

    def _add_attention(self, role: str, layer: int, name: str, values: Array) -> None:
        path = f"decoder.{layer}.cross" if role == "cross" else f"{role}.{layer}.self"
        stack = self.model.encoder if role == "encoder" else self.model.decoder
        part = stack[layer].cross if role == "cross" else stack[layer].attention
        assert isinstance(part, MultiHeadAttention)
        config = self.model.config
        masking = config.masking.role(role).name if "mask" in self.head_tensors else None
        formulas_of = attention_formulas(
            part, masking, config.model.mask_value, self._pre_norm, config.model.bias
        )
        if name == "output":
            self._add_heads(path, role, part.context.geometry, formulas_of)
            name = "projection"
        self._add_block_step(path, name, role, values, formulas_of[name])

    def _add_block_step(
        self, path: str, step: str, role: str, values: Array, description: Description
    ) -> None:
        """Add a step of a residual block."""
        if step in ("norm", "post_norm"):
            description = self._norm_formula(role), description[1]
        self._add(f"{path}.{step}", values, role, description)

    def _add_heads(
        self, path: str, role: str, geometry: Geometry, formulas_of: Mapping[str, Description]
    ) -> None:
        """Add the steps inside an attention, head by head; maps that are mixed into heads come first."""
        maps: Sequence[str] = ()
        heads: Sequence[str] = HEAD_STEPS
        if geometry.output_heads != geometry.heads:
            maps, heads = (
                [name for name in HEAD_STEPS if name not in OUTPUT_HEAD_STEPS],
                OUTPUT_HEAD_STEPS,
            )
        for kind, count, names in (
            ("map", geometry.heads, maps),
            ("head", geometry.output_heads, heads),
        ):
            for head in range(count if names else 0):
                self._add_head(f"{path}.{kind}.{head}", role, geometry, formulas_of, head, names)
        if "joined" in self.head_tensors:
            joined = _array(self.head_tensors["joined"])
            self._add(f"{path}.concatenation", joined, role, formulas_of["concatenation"])
        self.head_tensors = {}

    def _add_head(
        self,
        path: str,
        role: str,
        geometry: Geometry,
        formulas_of: Mapping[str, Description],
        head: int,
        names: Sequence[str],
    ) -> None:
        group = geometry.heads // geometry.kv_heads
        matrices = {
            name: _array(self.head_tensors[name][head // group if name in KEY_ROWS else head])
            for name in names
            if name in self.head_tensors and self.head_tensors[name].shape[-1]
        }
        if "scores" in matrices and "mask" not in matrices:
            del matrices["filled"]
        head_examples = _head_examples(matrices, geometry.scale)
        for name, values in matrices.items():
            step = "output" if name == "heads" else name.replace("_", "-")
            rows = self._key_tokens(role) if name in KEY_ROWS else self._query_tokens(role)
            columns = self._key_tokens(role) if name in KEY_COLUMNS else ()
            example = _line(head_examples.get(name, ""), rows, columns)
            self.steps.append(
                TraceStep(f"{path}.{step}", values, rows, columns, *formulas_of[step], example)
            )

    # -- settings and labels ---------------------------------------------------------------------

    @property
    def _pre_norm(self) -> bool:
        return self.model.config.model.norm != "post"

    def _norm_formula(self, role: str) -> str:
        stack = self.model.encoder if role == "encoder" else self.model.decoder
        formula: str = unshared(stack[0].attention_branch.norm).formula()
        return formula

    def _query_tokens(self, role: str) -> tuple[str, ...]:
        if role == "encoder":
            return self.inputs.source_tokens
        return self._decoder_tokens

    def _key_tokens(self, role: str) -> tuple[str, ...]:
        is_source = role == "encoder" or (role == "cross" and self.model.attends_to_source)
        if is_source:
            return self.inputs.source_tokens
        return self._decoder_tokens

    @property
    def _decoder_ids(self) -> Sequence[int]:
        """The ids that the decoder reads; a decoder-only model reads the source, too."""
        if self.model.encoder:
            return self.inputs.target
        return [*self.inputs.source, *self.inputs.target]

    @property
    def _decoder_tokens(self) -> tuple[str, ...]:
        if self.model.encoder:
            return self.inputs.target_tokens
        return self.inputs.source_tokens + self.inputs.target_tokens

    def _add(self, name: str, values: Array, role: str, description: Description) -> None:
        self.steps.append(TraceStep(name, values, self._query_tokens(role), (), *description))


def _line(example: str, rows: Sequence[str], columns: Sequence[str]) -> str:
    """Return the calculation of the first cell of the last row after the labels of the cell."""
    column = f"column “{columns[0]}”" if columns else "column 0"
    return example and f"row “{rows[-1]}”, {column}: {example}"


def _head_examples(matrices: dict[str, Array], scale: float) -> dict[str, str]:
    """Return the calculation of one cell for scores, weights and output of a head."""
    cells: dict[str, str] = {}
    total = "unmixed" if "unmixed" in matrices else "scores"
    first = "products" if "products" in matrices else total
    if first in matrices and "queries" in matrices:
        cells[first] = examples.product(
            matrices["queries"], matrices["keys"], scale, matrices[first]
        )
    masked_scores = matrices.get("filled", matrices.get("scores"))
    weights = "unmixed_weights" if "unmixed_weights" in matrices else "weights"
    if masked_scores is not None and weights in matrices:
        cells[weights] = examples.softmax_weight(masked_scores, matrices[weights])
    if "heads" in matrices:
        cells["heads"] = examples.weighted_sum(
            matrices["weights"], matrices["values"], matrices["heads"]
        )
    return cells


def _array(tensor: Tensor) -> Array:
    array: Array = tensor.detach().cpu().numpy()
    return array
