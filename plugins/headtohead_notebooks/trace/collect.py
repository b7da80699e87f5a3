"""Collect every step of the forward pass of one sentence pair on the explicit path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import scipy.special
import torch
from torch import Tensor, nn

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

BIASES = {"inner": "b_1", "output": "b_2", "gate": "b_3"}
"""The bias of each linear map of a feed-forward, if the model has biases."""

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
        """Return a batch of one sentence for every member, and the lengths of its sentences."""
        row = torch.tensor([list(ids)], dtype=torch.long, device=device)
        lengths = torch.full((model.members, 1), len(ids), device=device)
        return row.expand(model.members, 1, -1), lengths

    source, source_lengths = batch(inputs.source)
    target, target_lengths = batch(inputs.target)
    collector = _Collector(model, inputs, member)
    if "encoder" in model.roles:
        collector.add_ids("encoder")
        memory = model.encode(source, source_lengths, collector.observe)
        collector.add_ids("decoder")
        hidden = model.decode(target, target_lengths, memory, source_lengths, collector.observe)
    else:
        collector.add_ids("decoder")
        sentences = model.batch_of(source, source_lengths, target, target_lengths)
        hidden = model.hidden(sentences, collector.observe)
    logits = model.project(hidden)
    collector.add_output(_array(logits[member, 0]))
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
        """Add the ids that a side reads."""
        ids = self._decoder_ids
        if role == "encoder":
            ids = self.inputs.source
        self._add(f"{role}.ids", np.array(ids), role, formulas.EMBEDDING["ids"])

    def observe(self, role: str, layer: int | None, name: str, value: Tensor) -> None:
        """Add an observed tensor: ``[member, row, column]``, or ``[member, batch, head, row, column]``."""
        tensor = value[self.member]
        if name in HEAD_STEPS or name == "joined":
            has_batch = tensor.dim() == 4
            self.head_tensors[name] = tensor[0] if has_batch else tensor
            return
        values = _array(tensor)
        if layer is None:
            self._add_outside_layers(role, name, values)
        elif "." in name:
            self._add_feed_forward(role, layer, name, values)
        else:
            self._add_attention(role, layer, name, values)

    def add_output(self, logits: Array) -> None:
        """Add logits, probabilities and predicted words."""
        rows = self.inputs.target_tokens
        words = self.inputs.labels(logits.shape[1])
        probabilities = scipy.special.softmax(logits.astype(np.float64), axis=-1)
        best_first = np.argsort(-probabilities.max(axis=0))
        prominent = tuple(sorted(best_first[:SHOWN_WORDS].tolist()))

        formula, meaning = formulas.OUTPUT["logits"]
        lm_head = self.model.lm_head
        if lm_head is None:
            formula = "X E^T"
        else:
            formula = formulas.with_bias(formula, "b", lm_head.bias is not None)
        self.steps.append(
            TraceStep("logits", logits, rows, words, formula, meaning, prominent=prominent)
        )

        calculation = examples.softmax_weight(logits, probabilities)
        formula, meaning = formulas.OUTPUT["probabilities"]
        step = TraceStep("probabilities", probabilities, rows, words, formula, meaning)
        example = _line(calculation, rows, words)
        self.steps.append(replace(step, example=example, prominent=prominent))

        predicted = logits.argmax(axis=-1)
        remarks = []
        for index, row in zip(predicted.tolist(), probabilities, strict=True):
            remarks.append(f"{words[index]} ({row[index]:.0%})")
        formula, meaning = formulas.OUTPUT["chosen"]
        self.steps.append(
            TraceStep("chosen", predicted, rows, (), formula, meaning, remarks=tuple(remarks))
        )

    # -- parts of the model ----------------------------------------------------------------------

    def _add_outside_layers(self, role: str, name: str, values: Array) -> None:
        """Add a step before or after the layers of a side."""
        if name == "final_norm":
            description = (self._norm_formula(role), formulas.FINAL_NORM)
            self._add(f"{role}.norm", values, role, description)
            return
        formula, meaning = formulas.EMBEDDING[name]
        if name == "positions":
            formula = self.model.positionals[role].formula()  # type: ignore[operator]
        elif name == "mixed":
            first_layer = self._stack(role)[0]
            formula = first_layer.attention.style.formula()  # type: ignore[operator, union-attr]
        self._add(f"{role}.{name}", values, role, (formula, meaning))

    def _add_feed_forward(self, role: str, layer: int, name: str, values: Array) -> None:
        """Add a step of a feed-forward; ``name`` is the network and the step, as in ``feed_forward.inner``."""
        network, _, step = name.partition(".")
        formula, meaning = formulas.FEED_FORWARD[step]
        block = self._stack(role)[layer]
        entry = unshared(block.feed_forward).entry  # a layer's networks have the same entry
        if step == "activated":
            formula = entry.formula()
        elif step in ("inner", "gate"):
            formula = formula.replace("X", formulas.block_input(self._pre_norm))
        elif step == "output" and entry.gated:
            formula = formula.replace("f(H)", "(f(H) ∘ G)")
        if step in BIASES:
            formula = formulas.with_bias(formula, BIASES[step], self.model.config.model.bias)
        part = network.replace("_", "-")
        path = f"{role}.{layer}.{part}"
        self._add_block_step(path, step, role, values, (formula, meaning))

    def _add_attention(self, role: str, layer: int, name: str, values: Array) -> None:
        """Add a step of an attention; its output is preceded by the steps of its heads."""
        block = self._stack(role)[layer]
        if role == "cross":
            path = f"decoder.{layer}.cross"
            part = block.cross
        else:
            path = f"{role}.{layer}.self"
            part = block.attention
        assert isinstance(part, MultiHeadAttention)
        config = self.model.config
        masking = None
        if "mask" in self.head_tensors:
            masking = config.entry("masking", role).name
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
        formula, meaning = description
        if step in ("norm", "post_norm"):
            formula = self._norm_formula(role)
        self._add(f"{path}.{step}", values, role, (formula, meaning))

    def _add_heads(
        self, path: str, role: str, geometry: Geometry, formulas_of: Mapping[str, Description]
    ) -> None:
        """Add the steps inside an attention, head by head; maps that are mixed into heads come first."""
        head_steps: Sequence[str] = HEAD_STEPS
        if geometry.output_heads != geometry.heads:
            head_steps = OUTPUT_HEAD_STEPS
            map_steps = [name for name in HEAD_STEPS if name not in OUTPUT_HEAD_STEPS]
            for index in range(geometry.heads):
                part = f"{path}.map.{index}"
                self._add_head(part, role, geometry, formulas_of, index, map_steps)
        for index in range(geometry.output_heads):
            part = f"{path}.head.{index}"
            self._add_head(part, role, geometry, formulas_of, index, head_steps)
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
        """Add the named steps of one head, or of one map."""
        group = geometry.heads // geometry.kv_heads
        matrices = {}
        for name in names:
            tensor = self.head_tensors.get(name)
            if tensor is None or tensor.shape[-1] == 0:
                continue
            index = head // group if name in KEY_ROWS else head
            matrices[name] = _array(tensor[index])
        if "scores" in matrices and "mask" not in matrices:
            del matrices["filled"]
        calculations = _head_examples(matrices, geometry.scale)
        query_tokens = self._query_tokens(role)
        key_tokens = self._key_tokens(role)
        for name, values in matrices.items():
            step = "output" if name == "heads" else name.replace("_", "-")
            rows = key_tokens if name in KEY_ROWS else query_tokens
            columns = key_tokens if name in KEY_COLUMNS else ()
            example = _line(calculations.get(name, ""), rows, columns)
            formula, meaning = formulas_of[step]
            self.steps.append(
                TraceStep(f"{path}.{step}", values, rows, columns, formula, meaning, example)
            )

    # -- settings and labels ---------------------------------------------------------------------

    @property
    def _pre_norm(self) -> bool:
        return self.model.config.model.norm != "post"

    def _stack(self, role: str) -> nn.ModuleList:
        """Return the layers of the side that a role belongs to."""
        if role == "encoder":
            return self.model.encoder
        return self.model.decoder

    def _norm_formula(self, role: str) -> str:
        first_layer = self._stack(role)[0]
        formula: str = unshared(first_layer.attention_branch.norm).formula()
        return formula

    def _query_tokens(self, role: str) -> tuple[str, ...]:
        if role == "encoder":
            return self.inputs.source_tokens
        return self._decoder_tokens

    def _key_tokens(self, role: str) -> tuple[str, ...]:
        if role == "encoder":
            return self.inputs.source_tokens
        if role == "cross" and self.model.attends_to_source:
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
        """Add a step with a row per query."""
        rows = self._query_tokens(role)
        formula, meaning = description
        self.steps.append(TraceStep(name, values, rows, (), formula, meaning))


def _line(calculation: str, rows: Sequence[str], columns: Sequence[str]) -> str:
    """Return the calculation of the first cell of the last row after the labels of the cell."""
    if not calculation:
        return ""
    column = "column 0"
    if columns:
        column = f"column “{columns[0]}”"
    return f"row “{rows[-1]}”, {column}: {calculation}"


def _head_examples(matrices: dict[str, Array], scale: float) -> dict[str, str]:
    """Return the calculation of one cell for scores, weights and output of a head."""
    calculations: dict[str, str] = {}
    queries = matrices.get("queries")
    products = _first_present(("products", "unmixed", "scores"), matrices)
    if products is not None and queries is not None:
        keys = matrices["keys"]
        calculations[products] = examples.product(queries, keys, scale, matrices[products])
    masked_scores = _first_present(("filled", "scores"), matrices)
    weights = _first_present(("unmixed_weights", "weights"), matrices)
    if masked_scores is not None and weights is not None:
        scores = matrices[masked_scores]
        calculations[weights] = examples.softmax_weight(scores, matrices[weights])
    outputs = matrices.get("heads")
    if outputs is not None:
        head_weights = matrices["weights"]
        values = matrices["values"]
        calculations["heads"] = examples.weighted_sum(head_weights, values, outputs)
    return calculations


def _first_present(names: Sequence[str], matrices: Mapping[str, Array]) -> str | None:
    for name in names:
        if name in matrices:
            return name
    return None


def _array(tensor: Tensor) -> Array:
    array: Array = tensor.detach().cpu().numpy()
    return array
