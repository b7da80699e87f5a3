"""A variant under test: a small float64 stack with random sentences, shared by all invariants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import cycle, islice

import torch
from torch import Tensor

from headtohead.data import PreparedData
from headtohead.data.vocabulary import PAD, SOS, SPECIALS
from headtohead.model.attention import MultiHeadAttention, overrides
from headtohead.model.attention_context import AttentionContext
from headtohead.model.blocks import DecoderLayer, EncoderLayer
from headtohead.model.geometry import only_length
from headtohead.model.transformer import Observe, Transformer
from headtohead.plugins.attention import Attention
from headtohead.plugins.masking import Masking
from headtohead.plugins.positional import Positional
from headtohead.plugins.registry import current
from headtohead.schema.roles import ROLES
from headtohead.schema.run_config import RunConfig
from headtohead.testing.tiny import tiny_data

SOURCE_LENGTHS = ((6, 3, 4), (2, 6, 5))
TARGET_LENGTHS = ((5, 2, 4), (3, 5, 1))
SOURCE_WORDS, TARGET_WORDS = 12, 9
MOST_MOVED = 0.4
"""The largest relative move of a parameter; below 1, so that no sign changes."""


@dataclass(frozen=True)
class Lengths:
    """Live tokens of the sentences of one member after another, ``[member][batch]`` each.

    Members beyond those that are listed have the first ones again.
    """

    source: tuple[tuple[int, ...], ...] = SOURCE_LENGTHS
    target: tuple[tuple[int, ...], ...] = TARGET_LENGTHS


@dataclass(frozen=True)
class Sentences:
    """A batch of random sentences, ``[member, batch, time]`` and ``[member, batch]``."""

    source: Tensor
    source_lengths: Tensor
    target: Tensor
    target_lengths: Tensor

    @property
    def live_source(self) -> Tensor:
        """True where a source token is no padding."""
        return torch.arange(self.source.shape[-1]) < self.source_lengths.unsqueeze(-1)

    @property
    def live_target(self) -> Tensor:
        """True where a target token is no padding."""
        return torch.arange(self.target.shape[-1]) < self.target_lengths.unsqueeze(-1)


class Subject:
    """One configuration, built small enough to ask it many questions.

    Dropout is off. Every parameter is moved off its initial value, relative to that value, so that
    no gain is 1 and no bias is 0.

    Args:
        config: The variant; ``testing.tiny_config`` makes small ones from names.
        seeds: One per member.
        data: What stacks are trained on; default: a few pairs of invented words.
        lengths: Of the sentences that are asked about.
    """

    def __init__(
        self,
        config: RunConfig,
        seeds: Sequence[int] = (1, 2),
        data: PreparedData | None = None,
        lengths: Lengths | None = None,
    ) -> None:
        self.config = without_dropout(config)
        self.seeds = tuple(seeds)
        self.lengths = lengths or Lengths()
        self._data = data

    @property
    def is_shrunk(self) -> bool:
        """Whether it is made smaller than usual, to show something at the smallest example."""
        return self.lengths != Lengths()

    @cached_property
    def data(self) -> PreparedData:
        """Pairs to train on."""
        shared = self.config.data.vocabulary.shared
        # A target is read without its last token, and has two boundary tokens.
        words = None if self.only_length is None else self.only_length - 1
        return self._data or tiny_data(shared, words)

    @cached_property
    def words(self) -> tuple[int, int]:
        """Sizes of the source and target vocabulary."""
        shared = self.config.model.tie_embeddings == "all"
        return (SOURCE_WORDS, SOURCE_WORDS if shared else TARGET_WORDS)

    @cached_property
    def model(self) -> Transformer:
        """The stack, in evaluation mode; equal shapes have equal weights."""
        return self.build(self.seeds)

    def build(self, seeds: Sequence[int]) -> Transformer:
        """Build such a stack of other members."""
        model = Transformer(self.config, seeds, *self.words).double().eval()
        parameters = list(model.parameters())
        with torch.no_grad():
            moves = _moves(tuple(one.shape for one in parameters))
            for parameter, move in zip(parameters, moves, strict=True):
                parameter.add_(move * _scale(parameter))
        return model

    @cached_property
    def sentences(self) -> Sentences:
        """Sentences of unequal lengths; no source sentence has a word twice."""
        return self.draw_sentences(self.lengths)

    def draw_sentences(self, lengths: Lengths) -> Sentences:
        """Return random sentences of the given lengths."""
        generator = torch.Generator().manual_seed(11)
        first = len(SPECIALS)
        source_words, target_words = self.words
        members = len(self.seeds)
        sources = torch.tensor([*islice(cycle(lengths.source), members)])
        targets = torch.tensor([*islice(cycle(lengths.target), members)])
        shape = (*sources.shape, int(sources.max()))
        ranks = torch.rand(*shape[:-1], source_words - first, generator=generator).argsort(-1)
        target_time = self.only_length or int(targets.max())
        target = torch.randint(first, target_words, (*targets.shape, target_time), generator=generator)
        target[..., 0] = SOS
        drawn = Sentences(ranks[..., : shape[-1]] + first, sources, target, targets)
        return replace(
            drawn, source=drawn.source.where(drawn.live_source, PAD), target=drawn.target.where(drawn.live_target, PAD)
        )

    @torch.no_grad()
    def logits(self, sentences: Sentences | None = None) -> Tensor:
        """Return logits ``[member, batch, time, vocab]`` as training computes them."""
        return forward(self.model, sentences or self.sentences)

    @cached_property
    def plain(self) -> Tensor:
        """Logits of the subject's own sentences."""
        return self.logits()

    # -- parts -----------------------------------------------------------------------------------

    def attention(self, role: str) -> MultiHeadAttention:
        """Return the attention of the first layer of a role."""
        return attention_of(self.model, role)

    def positional(self, role: str) -> Positional:
        """Return the encoding of a role."""
        part = self.model.positionals[role]
        assert isinstance(part, Positional)
        return part

    def masking(self, role: str) -> Masking:
        """Return the masking of a role."""
        return self.model.maskings[role]

    @cached_property
    def only_length(self) -> int | None:
        """The one number of target tokens that the decoder is defined for, or None if any."""
        return only_length(self.config)

    @property
    def reading_target(self) -> tuple[str, ...]:
        """The roles whose keys are target tokens."""
        return ("decoder",) if self.model.attends_to_source else ("decoder", "cross")

    def times(self, role: str) -> tuple[int, int]:
        """Return the numbers of queries and keys of a role."""
        source, target = self.sentences.source.shape[-1], self.sentences.target.shape[-1]
        queries = source if role == "encoder" else target
        return queries, target if role in self.reading_target else source

    def mask(self, role: str) -> Tensor:
        """Return the mask of the subject's sentences, ``[member, batch, query, key]``."""
        queries, keys = self.times(role)
        sentences = self.sentences
        reads_target = role in self.reading_target
        lengths = sentences.target_lengths if reads_target else sentences.source_lengths
        return full_keep(self.masking(role), role, queries, keys, lengths.flatten()).view(*lengths.shape, queries, keys)

    def view(self, role: str, shift: int = 0, mask: Tensor | None = None) -> AttentionContext:
        """Return positions, all moved by ``shift``, and the given mask ``[m, b, query, key]``."""
        queries, keys = self.times(role)
        return AttentionContext(
            torch.arange(shift, shift + queries).unsqueeze(0),
            torch.arange(shift, shift + keys).unsqueeze(0),
            None if mask is None else mask.unsqueeze(2),
        )

    def activations(self, role: str) -> tuple[Tensor, Tensor | None]:
        """Return random inputs of an attention: queries' side and, in cross, the memory."""
        generator = torch.Generator().manual_seed(13)
        queries, keys = self.times(role)
        members, batch = self.sentences.source_lengths.shape
        width = self.config.model.d_model

        def random(time: int) -> Tensor:
            shape = (members, batch, time, width)
            return torch.randn(shape, generator=generator, dtype=torch.float64)

        return random(queries), None if self.attention(role).self_attention else random(keys)

    # -- domains ---------------------------------------------------------------------------------

    def hides(self, what: str, role: str) -> bool:
        """Tell whether a role's masking means to hide ``"future"`` or ``"padding"``.

        What it promises counts; a masking that promises nothing is taken at its word, its mask.
        """
        masking = self.masking(role)
        role_properties = masking.role_properties(role)
        if role_properties is not None:
            return f"hides-{what}" in role_properties
        places = torch.arange(6)
        lengths = torch.tensor([4])
        kept = full_keep(masking, role, 6, 6, lengths)[0]
        hidden = places[None, :] > places[:, None] if what == "future" else places[None, :] >= 4
        return not bool((kept & hidden).any())

    @property
    def is_causal(self) -> bool:
        """Whether every mask over target tokens means to hide the future."""
        return all(self.hides("future", role) for role in self.reading_target)

    def sees_all(self, role: str) -> bool:
        """Tell whether every query of a role sees every live key."""
        places = torch.arange(6)
        kept = full_keep(self.masking(role), role, 6, 6, torch.tensor([4]))[0]
        return bool(kept[:, places < 4].all())

    def position_dependent(self, role: str) -> bool:
        """Tell whether a role's style has scores that depend on positions by themselves."""
        return self.attention(role).style.position_dependent

    def is_plain(self, role: str) -> bool:
        """Tell whether a role's weights are the softmax of its scores, head by head."""
        style = self.attention(role).style
        own = ("scores", "mix_scores", "normalise", "mix")
        return style.projects and not any(overrides(style, Attention, name) for name in own)

    def properties(self, role: str, promise: str) -> bool:
        """Tell whether a role's encoding makes a promise."""
        return promise in self.positional(role).properties


@lru_cache(maxsize=64)
def _moves(shapes: tuple[torch.Size, ...]) -> list[Tensor]:
    """Return relative moves for parameters of these shapes, uniform and always the same."""
    generator = torch.Generator().manual_seed(7)
    drawn = (torch.rand(one, generator=generator, dtype=torch.float64) for one in shapes)
    return [MOST_MOVED * (2.0 * one - 1.0) for one in drawn]


def _scale(parameter: Tensor) -> Tensor:
    """Return the initial size of every element.

    The size of a zero is the root mean square of its parameter, or 1 where all elements are zero.
    """
    size = parameter.abs()
    typical = size.square().mean().sqrt()
    return size.where(size > 0, typical.where(typical > 0, 1.0))


def attention_of(model: Transformer, role: str) -> MultiHeadAttention:
    """Return the attention of the first layer of a role."""
    if role == "encoder":
        encoder = model.encoder[0]
        assert isinstance(encoder, EncoderLayer)
        return encoder.attention
    decoder = model.decoder[0]
    assert isinstance(decoder, DecoderLayer)
    return decoder.attention if role == "decoder" else decoder.cross


def full_keep(masking: Masking, role: str, queries: int, keys: int, lengths: Tensor) -> Tensor:
    """Return a mask with every axis at its full size, ``[batch, query, key]``."""
    found = masking.mask(role, torch.arange(queries), torch.arange(keys), lengths)
    shape = (len(lengths), queries, keys)
    return torch.ones(shape, dtype=torch.bool) if found is None else found.expand(shape)


def forward(model: Transformer, sentences: Sentences) -> Tensor:
    """Return the logits of a model."""
    logits: Tensor = model(sentences.source, sentences.source_lengths, sentences.target, sentences.target_lengths)
    return logits


def explicit_forward(
    model: Transformer, sentences: Sentences, observe: Observe = lambda role, layer, name, value: None
) -> Tensor:
    """Return the logits by the explicit path, each intermediate tensor shown to ``observe``."""
    memory = model.encode(sentences.source, sentences.source_lengths, observe)
    hidden = model.decode(sentences.target, sentences.target_lengths, memory, sentences.source_lengths, observe)
    return model.project(hidden)


def without_dropout(config: RunConfig) -> RunConfig:
    """Return the configuration with every dropout rate at zero."""
    places = ("dropout", "dropout_embedding", "dropout_attention", "dropout_ffn")
    zero = dict.fromkeys((*places, "dropout_residual"), 0.0)
    return config.model_copy(update={"model": config.model.model_copy(update=zero)})


@contextmanager
def filled(model: Transformer, fill: str) -> Iterator[None]:
    """Let every attention of a model fill masked scores in another way."""
    parts = [part for part in model.modules() if isinstance(part, MultiHeadAttention)]
    before = [part.fill for part in parts]
    try:
        for part in parts:
            part.fill = fill
        yield
    finally:
        for part, own in zip(parts, before, strict=True):
            part.fill = own


def chosen_names(config: RunConfig) -> str:
    """Return the variant in words, roles apart only where they differ."""
    parts = []
    for family in ("positional", "attention", "masking"):
        names = [getattr(config, family).role(role).name for role in ROLES]
        entry = current().find(family, names[1]).entry
        role_defaults = [entry.role_defaults.get(role, names[1]) for role in ROLES]
        parts.append(names[1] if names == role_defaults else "/".join(names))
    return " · ".join(parts)
