"""Dropout with random numbers per member, independent of the other members of a stack.

The random numbers are counter-based (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2,
3"). The inputs are the member's key, the step, the dropout site and the index of the number.
SplitMix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators", constants of
figure 16) turns them into 64 bits, of which 16 bits decide about an activation. A run therefore
drops the same activations on every device, in any stack, with any number of microbatches, and
after a resume.

On CUDA, dropout is one kernel with the same random numbers (``dropout_triton.py``): it stores no mask, and the
backward pass computes the bits again. Triton is imported at its first call.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headtohead.errors import first_line
from headtohead.model.cuda import on_cuda
from headtohead.model.members import PerMember, same_or_each
from headtohead.model.splitmix import GAMMA, mix_, mixed, signed

Rate = float | PerMember
"""A dropout rate for all members, or a rate per member."""

LANES = 4
"""Numbers of 16 bits in a word of 64 bits."""
LEVELS = 2**16
"""Number of values of 16 bits; rates are exact up to half of 1 / ``LEVELS``, and at most 1 - 1 / ``LEVELS``."""

FEW = 2**16
"""Largest number of words of a step that are generated in a single call. With more words, the
overhead of a call per site is small.
"""


torch.library.define(
    "headtohead::dropout",
    "(Tensor x, Tensor starts, Tensor low, Tensor scale, int start, int lead, int queries, int keys) -> Tensor",
    tags=torch.Tag.pt2_compliant_tag,
)


@torch.library.register_fake("headtohead::dropout")  # type: ignore[untyped-decorator]
def _fake(x: Tensor, *arguments: Any) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.impl("headtohead::dropout", "CUDA")
def _launch(*arguments: Any) -> Tensor:
    from headtohead.model.dropout_triton import dropout

    dropped: Tensor = dropout(*arguments)
    return dropped


@cache
def kernel_fault(device: torch.device) -> str:
    """Return why the kernel cannot run on a GPU, such as a missing Triton, C compiler or header; empty if it can.

    Every error becomes the reason (`first_line`). The result is cached per process and device.
    """
    try:
        activations = torch.ones(1, 1, device=device)
        starts = torch.zeros(1, dtype=torch.int64, device=device)
        low = torch.zeros_like(starts)
        scale = torch.ones(1, device=device)
        FusedDropout.apply(  # type: ignore[no-untyped-call]
            activations, starts, low, scale, 0, 0, 0, 0
        )
    except Exception as error:
        return first_line(error)
    return ""


class FusedDropout(torch.autograd.Function):
    """Dropout of ``x [member · any, ...]`` with the numbers of a request.

    Arguments after ``x``: starts of the members, smallest number that is kept and scale of the others (``[member]`` or
    ``[1]``), first counter, first number of its word, and number of queries and keys if the numbers belong to
    ``x.transpose(-2, -1)``, else zeros.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, starts: Tensor, low: Tensor, scale: Tensor, *numbers: int
    ) -> Tensor:
        """Return 0 for dropped activations, and scaled values for the others."""
        ctx.save_for_backward(starts, low, scale)
        ctx.numbers = numbers
        dropped: Tensor = torch.ops.headtohead.dropout(x, starts, low, scale, *numbers)
        return dropped

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        """Return the gradient of ``x``, with the same dropout."""
        dropped = torch.ops.headtohead.dropout(gradient, *ctx.saved_tensors, *ctx.numbers)
        return dropped, None, None, None, None, None, None, None


def uses_kernel(x: Tensor) -> bool:
    """Return whether dropout of ``x`` is a single kernel."""
    return (
        on_cuda(x)
        and x.device.type != "cpu"
        and not (x.device.type == "cuda" and kernel_fault(x.device))
    )


class Request(NamedTuple):
    """The random numbers of a call at a site: first counter, first number of its word, and count."""

    start: int
    lead: int
    numbers: int

    @property
    def words(self) -> int:
        """Number of words of 64 bits that contain the numbers."""
        return -(-(self.lead + self.numbers) // LANES)


class DropoutRNG(nn.Module):
    """The random numbers of dropout of a stack.

    Training calls ``set_step`` before each step, and ``start_microbatch`` and ``finish_microbatch``
    around each microbatch. Within a microbatch, each call at a site gets the next numbers of the site.

    Args:
        keys: A word of 64 bits per member.
        device: Device of the model.
    """

    def __init__(self, keys: Sequence[int], device: torch.device) -> None:
        """Create the buffers, without a step and without cached layouts."""
        super().__init__()
        words = torch.tensor([[signed(key)] for key in keys], device=device)
        self.register_buffer("keys", words, persistent=False)
        self.register_buffer("starts", words.clone(), persistent=False)
        self.register_buffer("counts", words.new_empty(0), persistent=False)
        self._first = 0
        self._rows = 1
        self._requests: list[Request] = []
        """The requests of the microbatch so far."""
        self._calls: dict[int, int] = {}
        """Number of calls in the microbatch by site."""
        self._ready: dict[Request, Tensor] | None = None
        """Words that were generated ahead; None before the first request of a microbatch."""
        self._batch: Hashable = None
        self._starts: dict[tuple[int, int], int] = {}
        """First counter by site and call."""
        self._layouts: dict[Hashable, tuple[list[Request], Tensor | None]] = {}
        """Requests and their counters by the shape of a batch; empty and None if they are too many."""

    @property
    def members(self) -> int:
        """Number of members."""
        return len(self.get_buffer("keys"))

    def set_step(self, step: int) -> None:
        """Set the step, the only input of the random numbers that changes on the device."""
        torch.add(self.get_buffer("keys"), signed(mixed(step)), out=self.get_buffer("starts"))
        self.start_microbatch()

    def start_microbatch(self, batch: Hashable = None, first: int = 0, rows: int = 1) -> None:
        """Start the next microbatch of the step: the calls of all sites are counted from 0 again.

        Args:
            batch: Shape of the batch. ``finish_microbatch`` caches the requests of a shape, and
                later batches of the shape generate their numbers in a single call. None caches nothing.
            first: Rows of each member's batch in earlier microbatches. A divided batch then drops
                the same activations as the whole batch.
            rows: Rows of this microbatch.
        """
        self._first, self._rows, self._batch = first, rows, batch
        self._requests = []
        self._calls.clear()
        self._ready = None

    def finish_microbatch(self) -> None:
        """End a microbatch after its backward pass and cache the layout of its shape.

        The cache outlives the step, so its tensors must not be allocated inside a CUDA graph
        capture. A captured step finds the layout of the eager step before it.
        """
        if self._batch is not None and self._batch not in self._layouts:
            self._layouts[self._batch] = self._layout(self._requests)
        self.start_microbatch()

    def numbers(self, site: int, count: int) -> Tensor:
        """Return the next ``count`` uniform int16 numbers of each member at a site."""
        request = self.request(site, count)
        self._requests.append(request)
        if self._ready is None:
            self._ready = self._generate_ahead()
        words = self._ready.get(request)
        if words is None:
            words = self._generate(self._counted(request.words) + request.start)
        return words.view(torch.int16)[:, request.lead : request.lead + count]

    def request(self, site: int, count: int) -> Request:
        """Return the request of the next ``count`` numbers of each member at a site."""
        call = self._calls.get(site, 0)
        self._calls[site] = call + 1
        if (site, call) not in self._starts:
            self._starts[site, call] = mixed(mixed(site) + call)
        skipped, lead = divmod(count // self._rows * self._first, LANES)
        return Request(signed(self._starts[site, call] + skipped * GAMMA), lead, count)

    def _generate_ahead(self) -> dict[Request, Tensor]:
        """Return the words of all requests of the batch shape, if its requests are cached."""
        requests, counts = self._layouts.get(self._batch, ([], None))
        if counts is None or not requests:
            return {}
        parts = self._generate(counts).split([request.words for request in requests], dim=1)
        return dict(zip(requests, parts, strict=True))

    def _generate(self, counts: Tensor) -> Tensor:
        return mix_(counts + self.get_buffer("starts"))

    def _layout(self, requests: list[Request]) -> tuple[list[Request], Tensor | None]:
        """Return the counters of all requests of a batch, if they are few enough to cache."""
        if not 0 < self.members * sum(request.words for request in requests) <= FEW:
            return [], None
        return requests, torch.cat(
            [self._counted(request.words) + request.start for request in requests]
        )

    def _counted(self, words: int) -> Tensor:
        counts = self.get_buffer("counts")
        if len(counts) < words:
            most = 1 << (words - 1).bit_length()
            counts = torch.arange(most, device=counts.device) * signed(GAMMA)
            self.counts = counts
        return counts[:words]


class Thresholds:
    """The smallest random number that is kept, and the factor of what is kept, of a dropout rate."""

    def __init__(self, rate: Rate) -> None:
        self.rate = rate
        rates = rate.values if isinstance(rate, PerMember) else (rate,)
        levels = [min(round(rate * LEVELS), LEVELS - 1) for rate in rates]
        lows = [level - LEVELS // 2 for level in levels]
        scales = [LEVELS / (LEVELS - level) for level in levels]
        self.low = same_or_each(lows)
        self.scale = same_or_each(scales)
        self.lows = PerMember(lows)
        self.scales = PerMember(scales)


class Dropout(nn.Module):
    """Dropout at a site of a model (Srivastava et al. 2014, section 4), with inverted scaling.

    Args:
        dropout_rng: Random numbers of the model.
        site: Number of the site within the model.
        thresholds: The thresholds of the probability that an activation is dropped.
    """

    def __init__(self, dropout_rng: DropoutRNG, site: int, thresholds: Thresholds) -> None:
        super().__init__()
        # In a tuple, so that the random numbers are registered with the model and not with each site.
        self._shared = (dropout_rng,)
        self.site = site
        self.rate = thresholds.rate
        self.thresholds = thresholds

    @property
    def is_active(self) -> bool:
        """Whether activations are dropped: in training, with a rate above 0."""
        return self.training and bool(self.rate)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x [member · any, ...]`` with dropout; ``x`` itself if inactive."""
        if not self.is_active:
            return x
        if uses_kernel(x):
            return self._fused(x, 0, 0)
        return x * self._factors(x.shape, x.dtype)

    def transposed(self, x: Tensor) -> Tensor:
        """Return ``x`` with the dropout that ``forward`` applies to ``x.transpose(-2, -1)``."""
        if not self.is_active:
            return x
        if uses_kernel(x):
            return self._fused(x, *x.shape[-2:])
        return x * self._factors(x.transpose(-2, -1).shape, x.dtype).transpose(-2, -1)

    def _fused(self, x: Tensor, queries: int, keys: int) -> Tensor:
        """Return ``x`` with dropout by the kernel, with the next numbers of the site; the rest as in `FusedDropout`."""
        dropout_rng = self._shared[0]
        request = dropout_rng.request(self.site, x.numel() // dropout_rng.members)
        starts = dropout_rng.get_buffer("starts")
        lows = self.thresholds.lows.vector_for(starts)
        scales = self.thresholds.scales.vector_for(x)
        dropped: Tensor = FusedDropout.apply(  # type: ignore[no-untyped-call]
            x, starts, lows, scales, request.start, request.lead, queries, keys
        )
        return dropped

    def _factors(self, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        """Return the factor of each activation: 0 for dropped ones, 1 / (1 - rate) for the others.

        The next numbers of the site are taken, so two calls in a microbatch give other factors.

        Args:
            shape: Shape of the activations, ``[member · any, ...]``.
            dtype: Type of the factors.
        """
        dropout_rng = self._shared[0]
        numbers = dropout_rng.numbers(self.site, shape.numel() // dropout_rng.members)
        # The comparison writes floats: a boolean intermediate is 2.2 times slower.
        factors = numbers.new_empty(numbers.shape, dtype=dtype)
        low = self.thresholds.low
        if isinstance(low, PerMember):
            torch.ge(numbers, low.broadcast_to(numbers), out=factors)
        else:
            torch.ge(numbers, low, out=factors)
        scale = self.thresholds.scale
        if isinstance(scale, PerMember):
            factors *= scale.broadcast_to(factors)
        else:
            factors *= scale
        return factors.view(shape)
