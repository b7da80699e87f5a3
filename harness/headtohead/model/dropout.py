"""Dropout whose draws are each member's own, whoever its neighbours are.

The numbers behind a mask are not carried along by a generator but counted (Salmon et al. 2011,
"Parallel random numbers: as easy as 1, 2, 3"): a member's key, the step, the place in the model and
the number's own count go in, SplitMix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom
number generators", with the constants of its figure 16) gives 64 bits, and every 16 of them decide
about one activation. So a run drops the same however stacks are cut, batches are split or a resumed
training goes on, on every device.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headtohead.model.members import PerMember, same_or_each

Rate = float | PerMember
"""A rate of dropout, of all members or of each."""

GAMMA = 0x9E3779B97F4A7C15
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
WORD = 2**64
LANES = 4
"""Numbers of 16 bits in a word of 64."""
LEVELS = 2**16
"""Numbers that 16 bits can be; rates are met to half of one in so many."""

FEW = 2**16
"""Words that are drawn at once for a step: where there are more, calls cost little beside them."""


def signed(word: int) -> int:
    """Return a word of 64 bits as torch's int64 holds it."""
    return (word + WORD // 2) % WORD - WORD // 2


def mixed(word: int) -> int:
    """Return what SplitMix64 makes of one word."""
    word = (word ^ (word >> 30)) * FIRST % WORD
    word = (word ^ (word >> 27)) * SECOND % WORD
    return word ^ (word >> 31)


def mix_(words: Tensor) -> Tensor:
    """Put in the place of int64 words what SplitMix64 makes of them."""
    moved = torch.empty_like(words)
    for shift, factor in ((30, FIRST), (27, SECOND), (31, None)):
        torch.bitwise_right_shift(words, shift, out=moved)
        # Shifting moves signs in, which are no bits of the word.
        words.bitwise_xor_(moved.bitwise_and_((1 << (64 - shift)) - 1))
        if factor is not None:
            words.mul_(signed(factor))
    return words


@dataclass(frozen=True)
class Request:
    """What a place asked for: the count that its numbers begin with, and how many there are."""

    start: int
    lead: int
    count: int

    @property
    def words(self) -> int:
        """Words of 64 bits that hold the numbers."""
        return -(-(self.lead + self.count) // LANES)


class DropoutRNG(nn.Module):
    """The random numbers of a stack's dropout.

    Args:
        keys: One word of 64 bits per member.
        device: Where the model is built.
    """

    def __init__(self, keys: Sequence[int], device: torch.device) -> None:
        super().__init__()
        own = torch.tensor([[signed(key)] for key in keys], device=device)
        self.register_buffer("keys", own, persistent=False)
        self.register_buffer("starts", own.clone(), persistent=False)
        self.register_buffer("counts", own.new_empty(0), persistent=False)
        self._first, self._rows = 0, 1
        self._asked: dict[tuple[int, int], Request] = {}
        self._calls: dict[int, int] = {}
        self._ready: dict[Request, Tensor] | None = None
        self._batch: Hashable = None
        self._starts: dict[tuple[int, int], int] = {}
        self._layouts: dict[Hashable, tuple[list[Request], Tensor | None]] = {}

    @property
    def members(self) -> int:
        """How many members draw."""
        return len(self.get_buffer("keys"))

    def set_step(self, step: int) -> None:
        """Say which step follows: the one number that the device is told from outside."""
        torch.add(self.get_buffer("keys"), signed(mixed(step)), out=self.get_buffer("starts"))
        self.start_microbatch()

    def start_microbatch(self, batch: Hashable = None, first: int = 0, rows: int = 1) -> None:
        """Start the next micro-batch of this step: the next ``rows`` of each member's batch.

        A batch in pieces drops what it would as a whole: ``first`` of its rows were seen before.
        The numbers that batches of one shape, ``batch``, ask for are cached by
        ``finish_microbatch``: later batches of the shape draw few numbers with one call.
        """
        self._first, self._rows, self._batch = first, rows, batch
        self._asked.clear()
        self._calls.clear()
        self._ready = None

    def finish_microbatch(self) -> None:
        """End a micro-batch after its backward pass and cache the layout of its shape.

        The cache outlives the step, so its tensors must not be allocated inside a CUDA graph
        capture. A captured step finds the layout of the eager step before it.
        """
        if self._batch is not None and self._batch not in self._layouts:
            self._layouts[self._batch] = self._layout(list(self._asked.values()))
        self.start_microbatch()

    def numbers(self, site: int, count: int) -> Tensor:
        """Return the next ``count`` int16 numbers of each member at a place, uniform."""
        call = self._calls.get(site, 0)
        self._calls[site] = call + 1
        if (site, call) not in self._starts:
            self._starts[site, call] = mixed(mixed(site) + call)
        skipped, lead = divmod(count // self._rows * self._first, LANES)
        asked = Request(signed(self._starts[site, call] + skipped * GAMMA), lead, count)
        self._asked[site, call] = asked
        if self._ready is None:
            self._ready = self._draw_ahead()
        words = self._ready.get(asked)
        if words is None:
            words = self._draw(self._counted(asked.words) + asked.start)
        return words.view(torch.int16)[:, lead : lead + count]

    def _draw_ahead(self) -> dict[Request, Tensor]:
        """Draw all that a batch of this shape asked for before, if that is held."""
        asked, counts = self._layouts.get(self._batch, ([], None))
        if counts is None or not asked:
            return {}
        parts = self._draw(counts).split([one.words for one in asked], dim=1)
        return dict(zip(asked, parts, strict=True))

    def _draw(self, counts: Tensor) -> Tensor:
        return mix_(counts + self.get_buffer("starts"))

    def _layout(self, asked: list[Request]) -> tuple[list[Request], Tensor | None]:
        """Return the counts of all that a batch asks for, if they are few enough to hold."""
        if not 0 < self.members * sum(one.words for one in asked) <= FEW:
            return [], None
        return asked, torch.cat([self._counted(one.words) + one.start for one in asked])

    def _counted(self, words: int) -> Tensor:
        known = self.get_buffer("counts")
        if len(known) < words:
            most = 1 << (words - 1).bit_length()
            known = torch.arange(most, device=known.device) * signed(GAMMA)
            self.counts = known
        return known[:words]


class Dropout(nn.Module):
    """Dropout at one place of a model (Srivastava et al. 2014, section 4), with inverted scaling.

    Args:
        stream: Where the numbers come from.
        place: Which of the model's places this is.
        rate: The share that is dropped.
    """

    def __init__(self, dropout_rng: DropoutRNG, site: int, rate: Rate) -> None:
        super().__init__()
        # Held in a tuple: the stream belongs to the model, not to each of its places.
        self._shared = (dropout_rng,)
        self.site = site
        self.rate = rate
        rates = rate.values if isinstance(rate, PerMember) else (rate,)
        levels = [round(one * LEVELS) for one in rates]
        self._low = same_or_each([one - LEVELS // 2 for one in levels])
        self._scale = same_or_each([LEVELS / (LEVELS - one) for one in levels])

    @property
    def is_active(self) -> bool:
        """Whether anything is dropped now."""
        return self.training and bool(self.rate)

    def forward(self, x: Tensor) -> Tensor:
        """Drop from ``x [member · anything, ...]``; free where nothing is dropped."""
        if not self.is_active:
            return x
        return x * self._factors(x.shape, x.dtype)

    def turned(self, x: Tensor) -> Tensor:
        """Drop what ``forward`` would from ``x`` with its last two axes exchanged."""
        if not self.is_active:
            return x
        return x * self._factors(x.transpose(-2, -1).shape, x.dtype).transpose(-2, -1)

    def _factors(self, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        """Return 0 for what is dropped, and what keeps the mean for the rest."""
        dropout_rng = self._shared[0]
        numbers = dropout_rng.numbers(self.site, shape.numel() // dropout_rng.members)
        low, scale = self._low, self._scale
        # Written as numbers at once: torch is slow to make booleans and to read them (2.2 times).
        factors = numbers.new_empty(numbers.shape, dtype=dtype)
        torch.ge(numbers, low.along(numbers) if isinstance(low, PerMember) else low, out=factors)
        factors *= scale.along(factors) if isinstance(scale, PerMember) else scale
        return factors.view(shape)
