"""A trained bias per head and distance bucket, added to the scores.

Paper: C. Raffel et al. "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
Transformer". JMLR 2020, arXiv:1910.10683, section 2.1: the bias is r[h, bucket(j - i)], with a table
for all layers of a role. Half of the buckets hold a single distance each, the others grow
logarithmically up to ``max_distance``. In the encoder, each direction has half of the buckets. In
the decoder, all buckets are for keys before the query; later keys, if the mask shows them, have
distance 0.
Departs from the paper: T5 drops the scale 1/sqrt(d_k); here the attention style determines it. In
cross-attention, where T5 has no positions, buckets are those of the encoder.
"""

import torch
from pydantic import Field
from torch import Tensor

from headtohead.plugin import Options as BaseOptions
from headtohead.plugin import Positional, Setting, hookimpl


class T5Options(BaseOptions):
    """Number and range of the buckets."""

    buckets: int = Field(32, ge=4, le=65_536, multiple_of=4, description="trained biases per head")
    max_distance: int = Field(
        128,
        ge=2,
        le=100_000,
        description="distance in tokens where the logarithmic buckets would end; the last one begins earlier, for 32 "
        "buckets at 91 (encoder) and 113 (decoder) of 128, and has all larger distances",
    )


def first_distances(buckets: int, max_distance: int) -> list[int]:
    """Return the smallest distance of each bucket of a direction, in exact integer arithmetic.

    >>> first_distances(16, 128)
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91]
    """
    exact = buckets // 2
    distances = list(range(exact))
    distance = exact
    for step in range(exact):
        # The bucket starts where distance >= exact · (max_distance / exact)^(step / exact).
        smallest = max_distance**step * exact**exact
        while distance**exact * exact**step < smallest:
            distance += 1
        distances.append(distance)
    return distances


def find_buckets(
    query_positions: Tensor, key_positions: Tensor, buckets: int, max_distance: int, both: bool
) -> Tensor:
    """Return the bucket of each pair, ``[batch or 1, query, key]``.

    ``both`` uses separate buckets for both directions; otherwise later keys have distance 0.
    """
    difference = key_positions[:, None, :] - query_positions[:, :, None]
    if not both:
        distance = (-difference).clamp(min=0)
        return bucket_of(distance, buckets, max_distance)
    side = buckets // 2
    index = bucket_of(difference.abs(), side, max_distance)
    is_later = difference > 0
    return index + side * is_later


def bucket_of(distance: Tensor, buckets: int, max_distance: int) -> Tensor:
    """Return the bucket of each distance among the buckets of one direction."""
    edges = torch.tensor(first_distances(buckets, max_distance), device=distance.device)
    return torch.bucketize(distance, edges, right=True) - 1


class T5Relative(Positional):
    """A trained number per head and bucket of distances, added to the scores.

    Each role has a table ``[head, bucket]``.
    """

    phrase = "T5 biases[ in {buckets} buckets][ up to distance {max_distance}]"
    Options = T5Options
    options: T5Options
    properties = frozenset({"relative"})

    def build(self) -> None:
        """Initialise the table as the authors' code does, normally with variance 1 / d_model."""
        heads = self.context.geometry.heads
        std = self.context.d_model**-0.5
        self.table = self.parameter(heads, self.options.buckets, std=std)

    @classmethod
    def incompatible_with(cls, options: BaseOptions, setting: Setting) -> str | None:
        """Require a largest distance beyond the distances with a bucket of their own."""
        assert isinstance(options, T5Options)
        single = options.buckets // 4
        if setting.role == "decoder":
            single = options.buckets // 2
        if options.max_distance > single:
            return None
        return (
            f"t5-relative with {options.buckets} buckets has {single} for single distances in the "
            f"{setting.role}; set positional.{setting.role}.max_distance to more than {single}"
        )

    def formula(self) -> str:
        return "B[i, j] = r[h, bucket(j − i)], r: a trained table for all layers"

    def bias(self, query_positions: Tensor, key_positions: Tensor, role: str, layer: int) -> Tensor:
        """Return the biases of the buckets, ``[member, batch or 1, head, query, key]``."""
        index = self.cached(
            find_buckets,
            query_positions,
            key_positions,
            self.options.buckets,
            self.options.max_distance,
            role != "decoder",
        )
        biases = self.table[:, :, index]
        return biases.transpose(1, 2)


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    return {"t5-relative": T5Relative}
