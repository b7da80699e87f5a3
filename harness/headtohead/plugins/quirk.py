"""Quirks: changes of a built model or of its batches that no other family describes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from headtohead.plugins.entry import Entry, Options


class Quirk(Entry):
    """A change of a model or of its batches; override ``change_model``, ``change_batch`` or ``key_sides``.

    An experiment file sets the options of a quirk below ``quirks``, such as ``quirks: {mine: {extra: 2}}``. All options
    are part of the run hash. A variant has the quirk if an option differs from its default, so the defaults must change
    nothing.
    """

    hooks = ("change_model", "change_batch", "key_sides")

    label_options: ClassVar[tuple[str, ...]] = ()
    """Options that change the labels: losses of variants that differ in them are not compared."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def change_model(self, model: Any, build: Any) -> None:
        """Replace parts of a model after it is built, or do nothing.

        Called once per model, also when its parameters and FLOPs are counted. Parts are modules of ``model``, such as
        ``model.decoder[0].feed_forward``. Their parameters need a leading member axis: ``build`` makes feed-forward
        networks, norms, residual blocks and dropout as the host does, and has the ``generators`` of the members.

        Args:
            model: The `Transformer`, in training mode.
            build: The `Builder` that made its parts.
        """

    def change_batch(self, batch: Any) -> Any:
        """Return another batch, or the same.

        Called once per split, with all its pairs as the batch of one member, before training, evaluation and decoding;
        every batch of a step is a part of the result. Probes of attention maps and sentences of ``h2h generate`` are
        not changed. Decoder inputs are those of shifted targets: the token at position ``target_lengths`` of a row is
        its last token, which is only a label.

        The number of decoder inputs may depend on the numbers of tokens, not on their ids: plans compute it from
        lengths alone.

        Args:
            batch: A `Batch` on the CPU. Replace its tensors instead of writing to them.
        """
        return batch

    @classmethod
    def key_sides(cls, options: Options) -> Mapping[str, str]:
        """Return the sides whose tokens are the keys, for attention roles in which they differ.

        ``{"cross": "target"}``: cross-attention attends to the decoder itself instead of the encoder's output.
        """
        return {}

    @classmethod
    def pitfalls_by_option(cls, options: Options) -> Mapping[str, tuple[str, str]]:
        """Return the pitfalls of these options: by option, the name and the consequence, which reports state."""
        return {}
