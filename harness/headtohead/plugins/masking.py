"""Masking schemes: which keys a query may attend to."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from headtohead.plugins.entry import Entry, Options
from headtohead.plugins.watched_reads import WatchedConstruction


class Masking(Entry, metaclass=WatchedConstruction):
    """A masking scheme, set per role; override ``mask``, and ``may_attend`` where it is possible.

    One object serves all layers of a role. It has options and no other state: ``mask`` depends on
    its arguments alone. It is called once per forward pass, and once per step of cached decoding.
    """

    hooks = ("mask",)
    known_properties = frozenset({"hides-future", "hides-padding", "shows-the-rest"})

    properties: ClassVar[frozenset[str] | None] = None
    """Declared properties, which the invariants verify.

    - ``hides-future``: no key after the query is attended to.
    - ``hides-padding``: no padding is attended to.
    - ``shows-the-rest``: every other key is attended to.

    None declares nothing: decoding then uses no cache, and sentences are translated in groups of
    equal length. Override ``role_properties`` where they depend on role or options.
    """

    def __init__(self, options: Options) -> None:
        self.options = options

    def role_properties(self, role: str) -> frozenset[str] | None:
        """Return the declared properties in a role; by default those of the class."""
        return self.properties

    def mask(
        self, role: str, query_positions: Tensor, key_positions: Tensor, lengths: Tensor
    ) -> Tensor | None:
        """Return a boolean mask, True where a query may attend to a key.

        Args:
            role: ``"encoder"``, ``"decoder"`` or ``"cross"``.
            query_positions: Integers ``[query]``. A step of cached decoding passes the position of
                the new token alone.
            key_positions: Integers ``[key]``.
            lengths: Tokens of each key sequence without padding, ``[batch]``. Padding follows the
                tokens.

        Returns:
            ``[batch or 1, query, key]``, or None if every query attends to every key.
        """
        raise NotImplementedError

    def hides_later(self, role: str) -> bool:
        """Return whether the scheme declares ``hides-future`` in a role.

        Cached decoding is exact under such a mask, so the core uses it there.
        """
        return "hides-future" in (self.role_properties(role) or ())

    def may_attend(self, role: str, query: int, key: int, length: int) -> bool | None:
        """Return whether the query at one position may attend to the key at another.

        This is the definition of the scheme in plain integers; the invariants compare ``mask``
        with it entry by entry. With None, the default, they verify only the declared properties,
        which do not determine, for example, the width of a window.
        """
        return None
