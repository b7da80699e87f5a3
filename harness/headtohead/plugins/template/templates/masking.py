"""Dilated attention: a query attends only to keys at multiples of a stride from itself.

Paper: authors, "title", venue, arXiv number, section: attend to j if stride divides i - j.
Departs from the paper: nothing.
"""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field
from torch import Tensor

from headtohead.plugin import Masking, Setting, hookimpl
from headtohead.plugin import Options as BaseOptions


class MyIdeaOptions(BaseOptions):
    """Options of ``my-idea``."""

    stride: int = Field(2, ge=1, description="distance between the keys of a query; 1 attends to all keys")


class MyIdea(Masking):
    """Query i attends to key j < length if stride divides i - j; in the decoder also j <= i."""

    Options = MyIdeaOptions
    options: MyIdeaOptions
    role_defaults: ClassVar[Mapping[str, str]] = {"cross": "padding"}

    def role_properties(self, role: str) -> frozenset[str]:
        """Return the declared properties of a role, which the invariants test."""
        properties = {"hides-padding", "hides-future"} if role == "decoder" else {"hides-padding"}
        return frozenset(properties)

    @classmethod
    def incompatible_with(cls, options: BaseOptions, setting: Setting) -> str | None:
        """Return a reason in cross-attention, where queries and keys are positions of two sentences."""
        if setting.role != "cross":
            return None
        return "my-idea requires positions of one sentence, and cross-attention has two; set masking.cross: padding"

    def mask(self, role: str, query_positions: Tensor, key_positions: Tensor, lengths: Tensor) -> Tensor:
        """Return True for keys that a query may attend to, ``[batch, query, key]``."""
        distance = query_positions[:, None] - key_positions[None, :]
        mask = distance % self.options.stride == 0
        if role == "decoder":
            mask = mask & (distance >= 0)
        return mask.unsqueeze(0) & (key_positions[None, None, :] < lengths[:, None, None])


@hookimpl
def register_maskings() -> dict[str, type[Masking]]:
    return {"my-idea": MyIdea}
