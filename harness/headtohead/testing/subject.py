"""The subject of an invariant: a variant as a small float64 stack, with random sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import cycle, islice
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

from headtohead.data import PreparedData
from headtohead.data.vocabulary import PAD, SOS, SPECIALS
from headtohead.model import attention
from headtohead.model.attention import MultiHeadAttention
from headtohead.model.attention_context import AttentionContext
from headtohead.model.geometry import only_length
from headtohead.model.layers import StackedFeedForward, unshared
from headtohead.model.quirks import decoder_input_lengths
from headtohead.model.transformer import Observe, Transformer
from headtohead.plugins.masking import Masking
from headtohead.plugins.norm import Norm
from headtohead.plugins.positional import Positional
from headtohead.schema.run_config import RunConfig, changed
from headtohead.testing.tiny import tiny_data

Lengths = tuple[tuple[tuple[int, int], ...], ...]
"""Source and target tokens of every sentence without padding, ``[member][batch]``."""

LENGTHS: Lengths = (((6, 5), (3, 2), (4, 4)), ((2, 3), (6, 5), (5, 1)))
LONGEST = (6, 5)
"""Tokens of the longest source and of the longest target."""
SOURCE_VOCAB_SIZE = 12
TARGET_VOCAB_SIZE = 9
DROPOUT_FIELDS = (
    "dropout",
    "dropout_embedding",
    "dropout_attention",
    "dropout_ffn",
    "dropout_residual",
)
MASK_VALUES = ("-inf", "-1e9", "additive")
"""Values of ``model.mask_value``."""
KERNELS = ("short", "long")
"""Batched matrix products, used for short sequences on a CPU, and ``scaled_dot_product_attention``."""
MAX_RELATIVE_MOVE = 0.4
"""Largest relative move of a parameter from its initial value; below 1, so that no sign changes."""


@dataclass(frozen=True)
class SentenceBatch:
    """A padded batch of random sentence pairs: ids ``[member, batch, time]``, lengths ``[member, batch]``."""

    source: Tensor
    source_lengths: Tensor
    target: Tensor
    target_lengths: Tensor

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Ids and lengths in the order of the arguments of `Transformer.batch_of`."""
        return self.source, self.source_lengths, self.target, self.target_lengths

    @property
    def source_nonpad(self) -> Tensor:
        """True at source positions that are not padding, ``[member, batch, time]``."""
        return torch.arange(self.source.shape[-1]) < self.source_lengths.unsqueeze(-1)

    @property
    def target_nonpad(self) -> Tensor:
        """True at target positions that are not padding, ``[member, batch, time]``."""
        return torch.arange(self.target.shape[-1]) < self.target_lengths.unsqueeze(-1)

    def map(self, function: Callable[[Tensor], Tensor]) -> SentenceBatch:
        """Return the batch with a function applied to ids and lengths."""
        return SentenceBatch(
            function(self.source),
            function(self.source_lengths),
            function(self.target),
            function(self.target_lengths),
        )


class Subject:
    """One variant as a small stack in float64, with everything that invariants need to check it.

    Dropout is off. Every parameter is moved from its initial value, relative to that value, so that
    no gain is 1 and no bias is 0.

    Args:
        config: The variant; `tiny_config` returns small variants.
        seeds: The seed of each member.
        data: Data for training stacks; by default a few pairs of invented words.
        longest: Tokens of the longest source and decoder inputs of the longest target of the study that ``config`` is
            a variant of; None without one.
    """

    def __init__(
        self,
        config: RunConfig,
        seeds: Sequence[int] = (1, 2),
        data: PreparedData | None = None,
        longest: tuple[int, int] | None = None,
    ) -> None:
        self.longest = longest
        self.config = changed(config, model=dict.fromkeys(DROPOUT_FIELDS, 0.0))
        self.seeds = tuple(seeds)
        self.lengths: Lengths = tuple(islice(cycle(LENGTHS), len(self.seeds)))
        self._data = data

    @property
    def roles(self) -> tuple[str, ...]:
        """The attention roles of the model."""
        return self.config.roles

    @cached_property
    def data(self) -> PreparedData:
        """Data for training stacks."""
        if self._data is not None:
            return self._data
        shared = self.config.data.vocabulary.shared
        if self.only_length is None:
            return tiny_data(shared)
        # The last token is not a decoder input, unless a quirk changes that.
        tokens = self.only_length + 1
        inputs = int(decoder_input_lengths(self.config, np.array([tokens]))[0])
        boundary_tokens = 2
        return tiny_data(shared, tokens - (inputs - self.only_length) - boundary_tokens)

    @cached_property
    def vocab_sizes(self) -> tuple[int, int]:
        """Sizes of the source and target vocabulary."""
        if self.config.model.tie_embeddings == "all" or "encoder" not in self.roles:
            return SOURCE_VOCAB_SIZE, SOURCE_VOCAB_SIZE
        return SOURCE_VOCAB_SIZE, TARGET_VOCAB_SIZE

    @cached_property
    def model(self) -> Transformer:
        """The stack in evaluation mode."""
        return self.build(self.seeds)

    def build(self, seeds: Sequence[int]) -> Transformer:
        """Return a new stack of the variant in evaluation mode, with the given seeds.

        The moves of the parameters depend on their shapes alone.
        """
        model = Transformer(self.config, seeds, *self.vocab_sizes).double().eval()
        move_parameters(model)
        return model

    @cached_property
    def sentences(self) -> SentenceBatch:
        """Random sentences of unequal lengths; no token occurs twice in a source sentence."""
        return self.random_sentences(self.lengths)

    @cached_property
    def decoded_sentences(self) -> SentenceBatch:
        """The subject's sentences; random sentences for a decoder-only model, which decodes sources of equal length."""
        if "encoder" in self.roles:
            return self.sentences
        source_time, _ = LONGEST
        lengths = []
        for pairs in self.lengths:
            lengths.append(tuple((source_time, target) for _, target in pairs))
        return self.random_sentences(tuple(lengths))

    def random_sentences(self, lengths: Lengths) -> SentenceBatch:
        """Return random sentences of the given lengths, the same in every call."""
        generator = torch.Generator().manual_seed(11)
        first = len(SPECIALS)
        source_size, target_size = self.vocab_sizes
        source_lengths, target_lengths = torch.tensor(lengths).unbind(-1)
        source_time = int(source_lengths.max())
        target_time = self.only_length or int(target_lengths.max())
        words = source_size - first
        # A permutation of all words, repeated: a short source has no word twice.
        ranks = torch.rand(*source_lengths.shape, words, generator=generator).argsort(-1)
        ranks = ranks.repeat(1, 1, -(-source_time // words))
        shape = (*target_lengths.shape, target_time)
        target = torch.randint(first, target_size, shape, generator=generator)
        target[..., 0] = SOS
        full = SentenceBatch(
            ranks[..., :source_time] + first, source_lengths, target, target_lengths
        )
        return replace(
            full,
            source=full.source.where(full.source_nonpad, PAD),
            target=full.target.where(full.target_nonpad, PAD),
        )

    def random_weights(self, generator: int | torch.Generator) -> Tensor:
        """Return random numbers of the shape of the logits, zero at padding; an integer is a seed."""
        if isinstance(generator, int):
            generator = torch.Generator().manual_seed(generator)
        weights = torch.randn(self.reference_logits.shape, generator=generator, dtype=torch.float64)
        return weights * self.sentences.target_nonpad.unsqueeze(-1)

    @torch.no_grad()
    def logits(self, sentences: SentenceBatch | None = None) -> Tensor:
        """Return the logits ``[member, batch, time, vocab]`` of the path that training uses."""
        return forward(self.model, self.sentences if sentences is None else sentences)

    @cached_property
    def reference_logits(self) -> Tensor:
        """Logits of the subject's sentences, ``[member, batch, time, vocab]``."""
        return self.logits()

    # -- modules of the model ----------------------------------------------------------------------

    def attention(self, role: str) -> MultiHeadAttention:
        """Return the attention of a role in the first layer."""
        return attention_of(self.model, role)

    def feed_forward(self, role: str) -> StackedFeedForward:
        """Return the feed-forward network of the first layer of a role."""
        return unshared(first_layer(self.model, role).feed_forward)  # type: ignore[no-any-return]

    def norm(self, role: str) -> Norm:
        """Return the first norm of the first layer of a role."""
        return unshared(first_layer(self.model, role).attention_branch.norm)  # type: ignore[no-any-return]

    def positional(self, role: str) -> Positional:
        """Return the positional encoding of a role."""
        part = self.model.positionals[role]
        assert isinstance(part, Positional)
        return part

    def masking(self, role: str) -> Masking:
        """Return the masking scheme of a role."""
        return self.model.maskings[role]

    @cached_property
    def only_length(self) -> int | None:
        """The only number of target tokens that the decoder accepts, None if it accepts any."""
        return only_length(self.config)

    @property
    def target_key_roles(self) -> tuple[str, ...]:
        """Roles in which target tokens are the keys."""
        return target_key_roles(self.model)

    def times(self, role: str) -> tuple[int, int]:
        """Return the numbers of queries and keys of a role."""
        source = self.sentences.source.shape[-1]
        target = self.sentences.target.shape[-1]
        if "encoder" not in self.roles:  # one sequence
            return source + target, source + target
        queries = source if role == "encoder" else target
        keys = target if role in self.target_key_roles else source
        return queries, keys

    def mask(self, role: str) -> Tensor:
        """Return the mask of the subject's sentences, ``[member, batch, query, key]``."""
        queries, keys = self.times(role)
        if "encoder" not in self.roles:
            lengths = self.sentences.source_lengths + self.sentences.target_lengths
        elif role in self.target_key_roles:
            lengths = self.sentences.target_lengths
        else:
            lengths = self.sentences.source_lengths
        mask = full_mask(self.masking(role), role, queries, keys, lengths.flatten())
        return mask.view(*lengths.shape, queries, keys)

    def attention_context(
        self, role: str, shift: int = 0, mask: Tensor | None = None
    ) -> AttentionContext:
        """Return the context of a role's attention: positions plus ``shift``, and the mask.

        Args:
            role: ``"encoder"``, ``"decoder"`` or ``"cross"``.
            shift: Added to the positions of queries and keys.
            mask: ``[member, batch, query, key]``; None allows every key.
        """
        queries, keys = self.times(role)
        query_positions = torch.arange(shift, shift + queries).unsqueeze(0)
        # One tensor where both are equal, as in the model.
        key_positions = query_positions
        if keys != queries:
            key_positions = torch.arange(shift, shift + keys).unsqueeze(0)
        if mask is None:
            declared = self.masking(role).role_properties(role) or frozenset()
            return AttentionContext(query_positions, key_positions, None, declared=declared)
        return AttentionContext(query_positions, key_positions, mask.unsqueeze(2))

    def activations(self, role: str) -> tuple[Tensor, Tensor | None]:
        """Return random inputs ``[member, batch, time, width]`` of an attention.

        The first are those of the queries; the second is the memory of cross-attention, None in
        self-attention.
        """
        generator = torch.Generator().manual_seed(13)
        queries, keys = self.times(role)
        members, batch = self.sentences.source_lengths.shape
        width = self.config.model.d_model

        def random(time: int) -> Tensor:
            shape = (members, batch, time, width)
            return torch.randn(shape, generator=generator, dtype=torch.float64)

        x = random(queries)
        memory = None if self.attention(role).is_self_attention else random(keys)
        return x, memory

    # -- properties of the variant -----------------------------------------------------------------

    def hides(self, keys: str, role: str) -> bool:
        """Return whether a role's masking scheme is meant to hide keys of a kind.

        The declared properties decide; without declared properties, a small mask decides.

        Args:
            keys: ``"future"`` or ``"padding"``.
            role: ``"encoder"``, ``"decoder"`` or ``"cross"``.
        """
        return hides(self.masking(role), keys, role)

    @property
    def is_causal(self) -> bool:
        """Whether every mask over target tokens is meant to hide the future."""
        return is_causal(self.model)

    def depends_on_order(self, role: str) -> bool:
        """Return whether a role's style depends on the order of tokens without any encoding."""
        style = self.attention(role).style
        return style.depends_on_order(style.options)

    def limit(self, role: str) -> int | None:
        """Return the number of positions that a role's encoding is limited to, or None."""
        positional = self.positional(role)
        return type(positional).limit(positional.options)


def next_words(ids: Tensor, vocab_size: int) -> Tensor:
    """Return the next word of the vocabulary for every id, after the last word the first; no special token."""
    first = len(SPECIALS)
    return first + (ids - first + 1) % (vocab_size - first)


@lru_cache(maxsize=64)
def _moves(shapes: tuple[torch.Size, ...]) -> list[Tensor]:
    """Return uniform relative moves of parameters of these shapes, the same in every call."""
    generator = torch.Generator().manual_seed(7)
    moves = []
    for shape in shapes:
        uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
        moves.append(MAX_RELATIVE_MOVE * (2.0 * uniform - 1.0))
    return moves


def _scale(parameter: Tensor) -> Tensor:
    """Return the absolute value of every element.

    For an element of zero: the root mean square of the parameter, or 1 if all elements are zero.
    """
    size = parameter.abs()
    typical = size.square().mean().sqrt()
    return size.where(size > 0, typical.where(typical > 0, 1.0))


def move_parameters(model: Transformer) -> None:
    """Move every parameter from its value, relative to that value, so that no gain is 1 and no bias is 0.

    The moves depend on the shapes of the parameters alone.
    """
    parameters = list(model.parameters())
    moves = _moves(tuple(parameter.shape for parameter in parameters))
    with torch.no_grad():
        for parameter, move in zip(parameters, moves, strict=True):
            parameter.add_(move * _scale(parameter))


def hides(masking: Masking, keys: str, role: str) -> bool:
    """Return whether a masking scheme is meant to hide keys of a kind in a role.

    The declared properties decide; without declared properties, a small mask decides.

    Args:
        masking: The masking scheme.
        keys: ``"future"`` or ``"padding"``.
        role: ``"encoder"``, ``"decoder"`` or ``"cross"``.
    """
    role_properties = masking.role_properties(role)
    if role_properties is not None:
        return f"hides-{keys}" in role_properties
    positions = torch.arange(6)
    lengths = torch.tensor([4])
    mask = full_mask(masking, role, 6, 6, lengths)[0]
    later = positions[None, :] > positions[:, None]
    hidden = later if keys == "future" else positions[None, :] >= 4
    return not bool((mask & hidden).any())


def key_inputs(x: Tensor, memory: Tensor | None) -> Tensor:
    """Return the inputs of an attention from which its keys are projected."""
    return x if memory is None else memory


def with_key_inputs(x: Tensor, memory: Tensor | None, keys: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the inputs of an attention with other keys; in self-attention these are the queries, too."""
    if memory is None:
        return keys, None
    return x, keys


def target_key_roles(model: Transformer) -> tuple[str, ...]:
    """Return the roles in which target tokens are the keys."""
    if model.attends_to_source:
        return ("decoder",)
    return ("decoder", "cross")


def is_causal(model: Transformer) -> bool:
    """Return whether every mask over target tokens is meant to hide the future."""
    return all(hides(model.maskings[role], "future", role) for role in target_key_roles(model))


def first_layer(model: Transformer, role: str) -> nn.Module:
    """Return the first layer with a role."""
    layers = model.encoder if role == "encoder" else model.decoder
    return layers[0]


def attention_of(model: Transformer, role: str) -> MultiHeadAttention:
    """Return the attention of a role in the first layer of a model."""
    layer = first_layer(model, role)
    part = layer.cross if role == "cross" else layer.attention
    assert isinstance(part, MultiHeadAttention)
    return part


def full_mask(masking: Masking, role: str, queries: int, keys: int, lengths: Tensor) -> Tensor:
    """Return a masking scheme's mask ``[batch, query, key]``, with axes of size 1 expanded and None as all True."""
    mask = masking.mask(role, torch.arange(queries), torch.arange(keys), lengths)
    shape = (len(lengths), queries, keys)
    if mask is None:
        return torch.ones(shape, dtype=torch.bool)
    return mask.expand(shape)


def forward(model: Transformer, sentences: SentenceBatch) -> Tensor:
    """Return the logits ``[member, batch, time, vocab]`` of a model on a batch."""
    logits: Tensor = model(*sentences.tensors)
    return logits


def explicit_forward(
    model: Transformer,
    sentences: SentenceBatch,
    observe: Observe = lambda role, layer, name, value: None,
) -> Tensor:
    """Return the logits of the explicit path; ``observe`` is called with each intermediate tensor."""
    batch = model.batch_of(*sentences.tensors)
    return model.project(model.hidden(batch, observe))


def gradients(model: nn.Module, output: Tensor, weights: Tensor | float = 1.0) -> dict[str, Tensor]:
    """Return the gradient of ``(output · weights).sum()`` for every parameter; zero where it is unused."""
    parameters = dict(model.named_parameters())
    if not parameters:
        return {}
    tensors = torch.autograd.grad(
        (output * weights).sum(),
        list(parameters.values()),
        allow_unused=True,
        materialize_grads=True,
    )
    return dict(zip(parameters, tensors, strict=True))


@contextmanager
def with_mask_value(model: Transformer, mask_value: str) -> Iterator[None]:
    """Use another ``model.mask_value`` in every attention of a model."""
    with ExitStack() as stack:
        for module in model.modules():
            if isinstance(module, MultiHeadAttention):
                stack.enter_context(patch.object(module, "mask_value", mask_value))
        yield


def force_kernel(kernel: str) -> AbstractContextManager[Any]:
    """Use one of ``KERNELS`` on the fused path, whatever the sequence lengths."""
    most = 2**62 if kernel == "short" else -1
    return patch.multiple(
        attention, MAX_SHORT_SCORES=most, MAX_SHORT_SCORES_BFLOAT16=most, MIN_SHORT_HEADS=0
    )
