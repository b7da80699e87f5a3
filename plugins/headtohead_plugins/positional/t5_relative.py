"""One trained number per head for each range of distances, added to the scores.

Paper: C. Raffel et al. "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
Transformer". JMLR 2020, arXiv:1910.10683, section 2.1: r[h, bucket(j - i)], one table for all
layers of a role; half of the buckets hold one distance each, half grow logarithmically up to
``max_distance``. Encoder: half of the buckets for either direction. Decoder: all of them for what
is behind the query; later keys, where a mask shows them, count as distance 0.
Departs from the paper: T5 drops the scale 1/sqrt(d_k), which here is as the attention says; in
cross-attention, where T5 has no positions, buckets are as in the encoder.
"""

import torch
from pydantic import Field
from torch import Tensor

from headtohead import Cost, Positional, Setting, hookimpl
from headtohead import Options as BaseOptions


class T5Options(BaseOptions):
    """How distances are sorted into buckets."""

    buckets: int = Field(32, ge=4, multiple_of=4, description="numbers trained for each head")
    max_distance: int = Field(128, ge=2, description="distance in tokens from which on all share the last bucket")


def first_distances(buckets: int, max_distance: int) -> list[int]:
    """Return the smallest distance of each bucket of one direction, in whole numbers throughout.

    >>> first_distances(16, 128)
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91]
    """
    exact = buckets // 2
    found, distance = list(range(exact)), exact
    for step in range(exact):
        # The bucket begins where distance >= exact · (max_distance / exact)^(step / exact).
        while distance**exact * exact**step < max_distance**step * exact**exact:
            distance += 1
        found.append(distance)
    return found


def find_buckets(query_positions: Tensor, key_positions: Tensor, buckets: int, max_distance: int, both: bool) -> Tensor:
    """Return the bucket of each pair, ``[batch or 1, query, key]``, for one or both directions."""
    apart = key_positions[:, None, :] - query_positions[:, :, None]
    distance = apart.abs() if both else (-apart).clamp(min=0)
    side = buckets // 2 if both else buckets
    edges = torch.tensor(first_distances(side, max_distance), device=apart.device)
    found = torch.bucketize(distance, edges, right=True) - 1
    return found + side * (apart > 0) if both else found


class T5Relative(Positional):
    """A trained table ``[head, bucket]`` for each role."""

    Options = T5Options
    options: T5Options
    cost = Cost(parameters="h*buckets")
    properties = frozenset({"relative"})

    def build(self) -> None:
        """Draw the table as the authors' code does, with a variance of 1 / d_model."""
        shape = (self.context.geometry.heads, self.options.buckets)
        self.table = self.parameter(*shape, std=self.context.d_model**-0.5)

    @classmethod
    def parameter_count(cls, options, context) -> int:  # type: ignore[no-untyped-def]
        """Return heads · buckets."""
        return int(context.geometry.heads * options.buckets)

    @classmethod
    def incompatible_with(cls, options: BaseOptions, setting: Setting) -> str | None:
        """Refuse a largest distance below the distances that have a bucket of their own."""
        assert isinstance(options, T5Options)
        alone = options.buckets // (2 if setting.role == "decoder" else 4)
        if options.max_distance > alone:
            return None
        return (
            f"t5-relative with {options.buckets} buckets has {alone} for single distances in the "
            f"{setting.role}; set positional.{setting.role}.max_distance to more than {alone}"
        )

    def formula(self) -> str:
        """Return where the numbers come from."""
        return "B[i, j] = r[h, bucket(j − i)], r: a trained table for all layers"

    def bias(self, query_positions: Tensor, key_positions: Tensor, role: str, layer: int) -> Tensor:
        """Look the buckets up, ``[member, batch or 1, head, query, key]``."""
        numbers = (self.options.buckets, self.options.max_distance, role != "decoder")
        found = self.cached(find_buckets, query_positions, key_positions, *numbers)
        return self.table[:, :, found].transpose(1, 2)


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    """Register ``t5-relative``."""
    return {"t5-relative": T5Relative}
