"""Masking schemes: which keys a query may attend to."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from headtohead.plugins.entry import Entry, Options


class Masking(Entry):
    """A masking scheme, set per role. Stateless: built from its options alone."""

    properties: ClassVar[frozenset[str] | None] = None
    """What the scheme means to do, for the invariants to hold it to.

    ``hides-future``: no key after the query; ``hides-padding``: no key beyond the length;
    ``shows-the-rest``: every other key. None promises nothing: its mask is taken at its word.
    A scheme whose promises depend on role or options answers ``promised`` instead.
    """

    def __init__(self, options: Options) -> None:
        self.options = options

    def role_properties(self, role: str) -> frozenset[str] | None:
        """Return what the scheme means to do in a role."""
        return self.properties

    def mask(self, role: str, query_positions: Tensor, key_positions: Tensor, lengths: Tensor) -> Tensor | None:
        """Return True where a query may see a key, ``[batch or 1, query, key]``; None keeps all.

        Args:
            role: ``"encoder"``, ``"decoder"`` or ``"cross"``.
            query_positions: Integers ``[query]``; a cached decoding step passes only the new ones.
            key_positions: Integers ``[key]``.
            lengths: Live tokens on the key side, ``[batch]``; padding stands on the right.
        """
        raise NotImplementedError

    def hides_later(self, role: str) -> bool:
        """Tell whether no query sees a key that stands behind it, as ``keep`` shows."""
        places = torch.arange(8)
        mask = self.mask(role, places, places, torch.tensor([8]))
        return mask is not None and not bool(mask.triu(1).any())

    def may_attend(self, role: str, query: int, key: int, length: int) -> bool | None:
        """Return whether one query may see one key, in plain numbers: the scheme's definition.

        The invariants hold ``keep`` to it, entry by entry. None where the scheme does not say; then
        its promises alone count, which know no width of a window.
        """
        return None
