"""Masking schemes: which keys a query may attend to."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from headtohead.families.entry import Entry, Options


class Masking(Entry):
    """A masking scheme, set per role. Stateless: built from its options alone."""

    promises: ClassVar[frozenset[str] | None] = None
    """What the scheme means to do, for the invariants to hold it to.

    ``hides-future``: no key after the query; ``hides-padding``: no key beyond the length;
    ``shows-the-rest``: every other key. None promises nothing: its mask is taken at its word.
    """

    def __init__(self, options: Options) -> None:
        self.options = options

    def keep(
        self, role: str, query_positions: Tensor, key_positions: Tensor, lengths: Tensor
    ) -> Tensor | None:
        """Return True where a query may see a key, ``[batch or 1, query, key]``; None keeps all.

        Args:
            role: ``"encoder"``, ``"decoder"`` or ``"cross"``.
            query_positions: Integers ``[query]``; a cached decoding step passes only the new ones.
            key_positions: Integers ``[key]``.
            lengths: Live tokens on the key side, ``[batch]``; padding stands on the right.
        """
        raise NotImplementedError
