"""Dilated attention: a query sees only every n-th key, counted from itself.

Paper: authors, "title", venue, arXiv number, section: keep j where stride divides i - j.
Departs from the paper: nothing.
"""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field
from torch import Tensor

from headtohead import Masking, Setting, hookimpl
from headtohead import Options as BaseOptions


class MyIdeaOptions(BaseOptions):
    """How far apart the keys are."""

    stride: int = Field(2, ge=1, description="a query sees every stride-th key; 1 shows all")


class MyIdea(Masking):
    """Keeps key j < length for query i where the stride divides i - j, in the decoder j <= i."""

    Options = MyIdeaOptions
    options: MyIdeaOptions
    role_defaults: ClassVar[Mapping[str, str]] = {"cross": "padding"}

    def role_properties(self, role: str) -> frozenset[str]:
        """Return that padding is hidden, in the decoder the future too."""
        hidden = {"hides-padding", "hides-future"} if role == "decoder" else {"hides-padding"}
        return frozenset(hidden)

    @classmethod
    def incompatible_with(cls, options: BaseOptions, setting: Setting) -> str | None:
        """Refuse cross-attention, whose queries and keys are places of two sentences."""
        if setting.role != "cross":
            return None
        return "my-idea counts places within one sentence, and cross-attention has two; set masking.cross: padding"

    def mask(self, role: str, query_positions: Tensor, key_positions: Tensor, lengths: Tensor) -> Tensor:
        """Return every stride-th key that is no padding, ``[batch, query, key]``."""
        behind = query_positions[:, None] - key_positions[None, :]
        kept = behind % self.options.stride == 0
        if role == "decoder":
            kept = kept & (behind >= 0)
        return kept.unsqueeze(0) & (key_positions[None, None, :] < lengths[:, None, None])


@hookimpl
def register_maskings() -> dict[str, type[Masking]]:
    """Register ``my-idea``."""
    return {"my-idea": MyIdea}
