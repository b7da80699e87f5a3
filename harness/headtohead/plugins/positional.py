"""Base class of positional encodings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

from torch import Tensor

from headtohead.plugins.component import Component
from headtohead.plugins.entry import Options

Result = TypeVar("Result")

MECHANISMS = ("embed", "rotate", "bias", "content_bias", "score", "values", "draw")
"""Hooks by which a positional encoding can act."""


class Positional(Component):
    """A positional encoding; override the hooks that it needs and no others.

    The core computes ``softmax(scale · q kᵀ + score + bias + content_bias) v + values``. An encoding
    acts by at least one of these hooks (its *mechanisms*); the base class leaves each of them inactive:

    ================  =====================  ==============================================
    hook              called                 effect
    ================  =====================  ==============================================
    ``embed``         before layer 0         added to the embeddings
    ``rotate``        in every layer, for    transforms queries and keys (training uses the
                      queries, then keys     fused kernel)
    ``bias``          in every layer         added to the scores (fused kernel)
    ``content_bias``  in every layer of      added to the scores, depends on the layer's
                      self-attention         inputs (fused kernel)
    ``score``         in every layer         added to the scores, depends on queries
                                             (explicit path)
    ``values``        in every layer         added to the weighted values (explicit path)
    ``draw``          in every training      returns sampled positions instead
                      pass, first
    ================  =====================  ==============================================

    An experiment sets an encoding per role (encoder, decoder, cross). One object serves all layers
    of its role; hooks that act in a layer receive its index.

    Positions are integer tensors ``[batch or 1, time]``, increasing along time and starting at 0.
    A cached decoding step passes the position of the new token alone as query position, and those
    of all tokens so far as key positions, so return values may depend on positions only, never on
    their number. In cross-attention, queries are target positions and keys source positions.

    Two exceptions:

    - With ``by_row``, ``embed`` receives batch rows ``[batch, 1]`` instead of positions. Its
      result is added to every token of a row.
    - With ``draw``, members have different positions in training: ``[member · batch, time]``,
      member after member. The argument of ``rotate`` and all results then have a member axis of 1
      and a batch axis of ``member · batch``; that of ``embed`` and ``bias`` may be 1.
    """

    role_defaults: ClassVar[dict[str, str]] = {"cross": "none"}
    hooks = MECHANISMS
    known_properties = frozenset(
        {"order-invariant", "relative", "mirror-invariant", "falls-with-distance"}
    )

    by_row: ClassVar[bool] = False
    """Whether positions are rows of the batch, as in notebook 3, instead of positions in the sentence."""

    properties: ClassVar[frozenset[str]] = frozenset()
    """Declared properties, which the invariants verify.

    - ``order-invariant``: an encoder without a mask is a bag of words.
    - ``relative``: shifting all positions by the same number changes nothing.
    - ``mirror-invariant``: the encoding depends on distance and not on direction, so an encoder
      cannot distinguish a sentence from its mirror image.
    - ``falls-with-distance``: on equal tokens, attention weights fall with distance.

    An encoding without ``order-invariant`` must make the output depend on word order.
    """

    @classmethod
    def mechanisms_of(cls, options: Options) -> frozenset[str]:
        """Return the names of the hooks by which the encoding acts, a subset of ``MECHANISMS``.

        The default is the set of overridden hooks. Override it where options disable a hook, or
        where hooks delegate to another encoding.
        """
        return frozenset(
            name for name in MECHANISMS if getattr(cls, name) is not getattr(Positional, name)
        )

    @property
    def mechanisms(self) -> frozenset[str]:
        """Names of the hooks by which this object acts."""
        return type(self).mechanisms_of(self.options)

    @property
    def parts(self) -> Sequence[Positional]:
        """This encoding; if members of a stack have different encodings, each of these for its group of members."""
        return [self]

    def draw(self, batch: int, time: int) -> Tensor | None:
        """Return sampled positions ``[member, batch, time]`` for a training pass, or None.

        Called once per step in the roles encoder and decoder, before the other hooks and for the
        whole batch; microbatches use their rows of the result. Use ``PerMemberRNG`` for random
        numbers. Evaluation does not call it and uses the positions 0, 1, 2, ... It can be combined
        with ``embed``, ``rotate`` and ``bias``.
        """
        return None

    def cached(self, compute: Callable[..., Result], *arguments: Any) -> Result:
        """Return ``compute(*arguments)``, computed once for the same tensor objects.

        Use it for tables that do not depend on parameters: the core passes the same position
        tensors in every step. Sampled positions do not recur, so their tables are not cached.
        """
        if any(
            isinstance(value, Tensor) and value.dim() == 2 and min(value.shape) > 1
            for value in arguments
        ):
            return compute(*arguments)
        memory: dict[Any, Any] = self.__dict__.setdefault("_cache", {})
        key = (compute, *(id(value) if isinstance(value, Tensor) else value for value in arguments))
        if key not in memory:
            if len(memory) >= 512:
                memory.clear()
            # The arguments are stored with the result: an id is unique among living objects only.
            memory[key] = (arguments, compute(*arguments))
        result: Result = memory[key][1]
        return result

    def embed(self, positions: Tensor, role: str) -> Tensor | None:
        """Return the term added to the embeddings, ``[member or 1, batch or 1, time, d_model]``."""
        return None

    def rotate(self, x: Tensor, positions: Tensor, role: str, layer: int) -> Tensor:
        """Return transformed queries or keys, ``[member, batch, head, time, key width]``.

        Called twice per layer, for queries with query positions and for keys with key positions.
        """
        return x

    def bias(
        self, query_positions: Tensor, key_positions: Tensor, role: str, layer: int
    ) -> Tensor | None:
        """Return the term added to scaled scores, ``[member|1, batch|1, head|1, query, key]``."""
        return None

    def content_bias(self, x: Tensor, queries: int, role: str, layer: int) -> Tensor | None:
        """Return a term added to scaled scores that depends on the inputs of the layer; for self-attention only.

        Args:
            x: Inputs of the projections at the keys, ``[member, batch, key, d_model]``. In cached decoding, those of
                all tokens so far.
            queries: Number of queries; their tokens are the last of the keys.
            role: ``"encoder"`` or ``"decoder"``.
            layer: Index of the layer, from 0.

        Returns:
            ``[member, batch, head or 1, query, key]``. A number may depend on the query, the key and the tokens between
            them, and on no others.
        """
        return None

    def score(
        self, q: Tensor, query_positions: Tensor, key_positions: Tensor, role: str, layer: int
    ) -> Tensor | None:
        """Return the term added to scaled scores that depends on the queries.

        The core does not scale it: multiply by ``context.geometry.scale`` where the paper does.

        Args:
            q: Queries after ``rotate``, ``[member, batch, head, query, key width]``.
            query_positions: ``[batch or 1, query]``.
            key_positions: ``[batch or 1, key]``.
            role: ``"encoder"``, ``"decoder"`` or ``"cross"``.
            layer: Index of the layer, from 0.

        Returns:
            ``[member, batch, head, query, key]``.
        """
        return None

    def values(
        self, weights: Tensor, query_positions: Tensor, key_positions: Tensor, role: str, layer: int
    ) -> Tensor | None:
        """Return the term added to ``weights · v``, ``[member, batch, head, query, value width]``.

        ``weights`` are ``[member, batch, head, query, key]``, after masking and dropout.
        """
        return None
