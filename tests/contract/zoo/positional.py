"""Positional encodings with a single fault each: the docstring names it, `caught_by` the invariants that detect it."""

import re
from typing import ClassVar

import torch
from torch.nn import functional

from headtohead.plugin import PerMemberRNG, Positional, hookimpl, sorted_subset
from headtohead_plugins.positional.alibi import Alibi, slopes
from headtohead_plugins.positional.kerple_log import KerpleLog
from headtohead_plugins.positional.learned import Learned
from headtohead_plugins.positional.none import NoPositional
from headtohead_plugins.positional.randomised import Randomised
from headtohead_plugins.positional.rotary import Rotary, angles, rotate_pairs
from headtohead_plugins.positional.shape import Shape
from headtohead_plugins.positional.sinusoidal import Sinusoidal, sinusoids
from headtohead_plugins.positional.t5_relative import T5Relative, find_buckets


class FlippedAlibi(Alibi):
    """sign flipped: weights rise with distance"""

    found_in = "PyTorch's FlexAttention tutorial"
    caught_by = ("falls-with-distance",)

    def bias(self, query_positions, key_positions, role, layer):
        return -super().bias(query_positions, key_positions, role, layer)


class OneSidedAlibi(Alibi):
    """penalty on the left only: no penalty on later keys in the encoder"""

    caught_by = ("source-mirror", "falls-with-distance")

    def bias(self, query_positions, key_positions, role, layer):
        behind = (query_positions[:, :, None] >= key_positions[:, None, :]).unsqueeze(1)
        return super().bias(query_positions, key_positions, role, layer) * behind


class KeyOnlyAlibi(Alibi):
    """penalty by the key's position only, correct in a causal decoder and wrong in an encoder"""

    found_in = "BLOOM's build_alibi_tensor, if used in an encoder"
    caught_by = ("falls-with-distance",)

    def bias(self, query_positions, key_positions, role, layer):
        last = torch.full_like(query_positions, int(key_positions.max()))
        return super().bias(last, key_positions, role, layer)


class UncachedAlibi(Alibi):
    """bias missing in cached decoding"""

    caught_by = ("cached-decoding",)

    def bias(self, query_positions, key_positions, role, layer):
        if query_positions.shape[1] == 1:
            return None
        return super().bias(query_positions, key_positions, role, layer)


class NoDecoderBias(Alibi):
    """bias missing in the decoder"""

    caught_by = ("positions-act",)

    def bias(self, query_positions, key_positions, role, layer):
        return None if role == "decoder" else super().bias(query_positions, key_positions, role, layer)


class HalfBias(Positional):
    """bias computed in half precision"""

    caught_by = ("precision",)
    properties = Alibi.properties

    def bias(self, query_positions, key_positions, role, layer):
        distance = (query_positions[:, :, None] - key_positions[:, None, :]).abs().half()
        rates = torch.tensor([0.3, 0.1, 0.03, 0.01], dtype=torch.float16, device=distance.device)
        return -(rates[:, None, None] * distance[:, None]).unsqueeze(0)


class HalfSplitKeys(Rotary):
    """pairs (2i, 2i+1) in queries and (i, i + d/2) in keys"""

    found_in = "checkpoints of GPT-J and of GPT-NeoX confused"
    caught_by = ("joint-shift",)

    def rotate(self, x, positions, role):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls % 2:
            return super().rotate(x, positions, role)
        cos, sin = angles(positions, x.shape[-1], 10000.0, x.dtype)
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


class UnrotatedKeys(Rotary):
    """queries rotated, keys not"""

    caught_by = ("joint-shift",)

    def rotate(self, x, positions, role):
        self.calls = getattr(self, "calls", 0) + 1
        return super().rotate(x, positions, role) if self.calls % 2 else x


class SingleRotary(Rotary):
    """angles in single precision"""

    found_in = "rotary caches computed under autocast"
    caught_by = ("precision",)

    def rotate(self, x, positions, role):
        even = torch.arange(0, x.shape[-1], 2, device=x.device).float()
        turns = positions.float()[:, None, :, None] * 10000.0 ** (-even / x.shape[-1])
        return rotate_pairs(x, turns.cos().to(x.dtype), turns.sin().to(x.dtype))


class SingleSinusoids(Sinusoidal):
    """float32 constant in a float64 model"""

    found_in = "notebooks 1 to 4"
    caught_by = ("precision",)

    def embed(self, positions, role):
        even = torch.arange(0, self.context.d_model, 2, device=positions.device)
        turns = positions[..., None] * torch.exp(even * (-9.210340371976184 / self.context.d_model))
        return torch.stack([turns.sin(), turns.cos()], dim=-1).flatten(-2).unsqueeze(0)


class CountedPositions(Positional):
    """positions restarted in the cache: every step is at position 0"""

    caught_by = ("cached-decoding",)

    def embed(self, positions, role):
        return sinusoids(positions - positions.min(), self.context.d_model).unsqueeze(0)


class LateStep(Sinusoidal):
    """position off by one in cached decoding"""

    caught_by = ("cached-decoding",)

    def embed(self, positions, role):
        late = 1 if positions.shape[-1] == 1 else 0
        return super().embed(positions + late, role)


class CachedByShape(Sinusoidal):
    """table cached by shape, whatever the positions"""

    caught_by = ("cached-decoding",)

    def build(self):
        self.tables = {}

    def embed(self, positions, role):
        key = (positions.shape, positions.device)
        if key not in self.tables:
            self.tables[key] = sinusoids(positions, self.context.d_model).unsqueeze(0)
        return self.tables[key]


class UndeclaredPositions(NoPositional):
    """declares order-invariant and encodes positions"""

    caught_by = ("source-order", "positions-act")

    def embed(self, positions, role):
        return 1e-3 * sinusoids(positions, self.context.d_model).unsqueeze(0)


class ClampedLearned(Learned):
    """positions clamped to the table instead of an error"""

    caught_by = ("limit",)

    def embed(self, positions, role):
        return self.table[:, positions.clamp(max=self.table.shape[1] - 1)]


class ShortSinusoids(Sinusoidal):
    """a table of 512 rows, its last row for all later positions, and no declared limit"""

    caught_by = ("limit",)

    def embed(self, positions, role):
        return super().embed(positions.clamp(max=511), role)


class WrappedRotary(Rotary):
    """positions taken modulo the size of a table"""

    caught_by = ("joint-shift",)

    def rotate(self, x, positions, role):
        return super().rotate(x, positions % 1001, role)


class IdleLearned(Learned):
    """parameter never used"""

    caught_by = ("gradients",)

    def embed(self, positions, role):
        return 0.0 * super().embed(positions, role) + sinusoids(positions, self.context.d_model)


class HalfDetached(Learned):
    """half of the gradient missing"""

    caught_by = ("derivative",)

    def embed(self, positions, role):
        table = super().embed(positions, role)
        return 0.5 * table + 0.5 * table.detach()


class CachedLearned(Learned):
    """a trained table cached across steps"""

    caught_by = ("derivative",)

    def embed(self, positions, role):
        return self.cached(self._look_up, positions)

    def _look_up(self, positions):
        return self.table[:, positions]


class UnseededLearned(Learned):
    """initialised from torch's global generator instead of the member's generator"""

    caught_by = ("determinism", "stateless")

    def build(self):
        self.table = self.parameter(128, self.context.d_model, init=lambda out, generator: out.normal_())


class FirstGenerator(Learned):
    """all members initialised from the first member's generator"""

    caught_by = ("determinism",)

    def build(self):
        super().build()
        own = self.table.data
        own.copy_(own[:1].expand_as(own).clone())


class AverageLearned(Learned):
    """table averaged over members"""

    caught_by = ("members", "stacking")

    def embed(self, positions, role):
        table = super().embed(positions, role)
        return 0.9 * table + 0.1 * table.mean(0, keepdim=True)


class FirstLayerOnly(KerpleLog):
    """parameters for each layer, but every layer uses those of the first"""

    caught_by = ("gradients",)
    options: ClassVar = {"layers": "own"}

    def bias(self, query_positions, key_positions, role, layer):
        return super().bias(query_positions, key_positions, role, 0)


class FirstHeadOnly(Positional):
    """a slope for each head, but every head uses the first"""

    caught_by = ("gradients",)
    properties = KerpleLog.properties

    def build(self):
        self.raw = self.parameter(self.context.geometry.heads)

    def bias(self, query_positions, key_positions, role, layer):
        distance = (query_positions[:, :, None] - key_positions[:, None, :]).abs()
        rate = functional.softplus(self.raw)[:, :1, None, None]
        return -(rate * distance).unsqueeze(2)


class FlippedT5(T5Relative):
    """direction flipped: in the decoder every visible key is in the first bucket"""

    caught_by = ("positions-act",)

    def bias(self, query_positions, key_positions, role, layer):
        buckets = find_buckets(key_positions, query_positions, 32, 128, role != "decoder")
        if role == "decoder":
            buckets = torch.where(buckets > 0, 0 * buckets, buckets)
        return self.table[:, :, buckets].transpose(1, 2)


class FalseRelative(Sinusoidal):
    """declares relative and is not"""

    caught_by = ("joint-shift",)
    properties = frozenset({"relative"})


class FalseFallsWithDistance(T5Relative):
    """declares falls-with-distance and does not fall"""

    caught_by = ("falls-with-distance",)
    properties = frozenset({"relative", "falls-with-distance"})


class FalseMirrorInvariant(Rotary):
    """declares mirror-invariant and is not"""

    caught_by = ("source-mirror",)
    properties = frozenset({"relative", "mirror-invariant"})


class FalseOrderInvariant(Sinusoidal):
    """declares order-invariant and is not"""

    caught_by = ("source-order", "positions-act")
    properties = frozenset({"order-invariant"})


class UndeclaredRelative(Rotary):
    """is relative and does not declare it"""

    caught_by = ("joint-shift",)
    properties = frozenset()


class GlobalGenerator(Shape):
    """training positions sampled from torch's global generator"""

    caught_by = ("sampled-positions", "stacking")

    def draw(self, batch, time):
        offsets = torch.randint(500, (self.context.members, batch, 1))
        return offsets + torch.arange(time)


class SharedSample(Shape):
    """all members use the sampled positions of the first"""

    caught_by = ("sampled-positions",)

    def draw(self, batch, time):
        drawn = super().draw(batch, time)
        return drawn[:1].expand_as(drawn)


class UnsortedSample(Randomised):
    """random positions that are not sorted"""

    caught_by = ("sampled-positions",)

    def draw(self, batch, time):
        return self.rng(lambda generator: sorted_subset(2048, time, batch, generator).flip(-1))


class RestartedSamples(Shape):
    """the random stream restarts after a resume"""

    caught_by = ("sampled-positions", "resume")

    def build(self):
        super().build()
        self.count = 0

    def draw(self, batch, time):
        self.count += 1
        shifts = []
        for state in self.rng.get_buffer("state").tolist():
            generator = torch.Generator().manual_seed(state[0] + self.count)
            shifts.append(torch.randint(500, (batch, 1), generator=generator))
        return torch.stack(shifts) + torch.arange(time)


class SamplesInEvaluation(Sinusoidal):
    """offset sampled in evaluation, too"""

    caught_by = ("determinism",)

    def build(self):
        self.rng = PerMemberRNG(self.context)

    def embed(self, positions, role):
        offsets = self.rng(lambda generator: torch.randint(5, (1,), generator=generator))
        width = self.context.d_model
        return torch.stack([sinusoids(positions + offset, width) for offset in offsets])


class LeftBehind(Positional):
    """table that does not move to the model's device"""

    caught_by = ("any-device",)

    def embed(self, positions, role):
        if not hasattr(self, "table"):
            self.table = sinusoids(torch.arange(8000), self.context.d_model)
        return self.table[positions.cpu()].unsqueeze(0)


class PositionsMoved(Sinusoidal):
    """in-place change of the positions"""

    caught_by = ("stateless",)

    def rotate(self, x, positions, role):
        positions += 1
        return x


class UnsavedRandomBuffer(Positional):
    """random frequencies that are not saved"""

    caught_by = ("checkpoint",)

    def build(self):
        self.rates = self.constant(self.parameter(self.context.d_model // 2).detach())

    def embed(self, positions, role):
        turns = positions[None, ..., None].double() * self.rates.double()[:, None, None]
        return torch.cat([turns.sin(), turns.cos()], dim=-1)


class SharedOfLength(Sinusoidal):
    """positions divided by the padded length"""

    caught_by = ("pad-columns", "batch-of-one")

    def embed(self, positions, role):
        return super().embed(20 * positions.double() / (positions.max() + 1), role)


class DividesByLast(Sinusoidal):
    """division by length minus one, which is zero for a single token"""

    caught_by = ("finite",)

    def embed(self, positions, role):
        spread = positions.double() / (positions.shape[-1] - 1)
        return spread[None, ..., None] * torch.ones(self.context.d_model, dtype=torch.float64, device=positions.device)


class LateAlibi(Alibi):
    """distance off by one: distance 1 to the token itself, 0 to the previous token"""

    caught_by = ("falls-with-distance",)

    def bias(self, query_positions, key_positions, role, layer):
        return super().bias(query_positions - 1, key_positions, role, layer)


class TooFewSlopes(Alibi):
    """slopes for another number of heads"""

    caught_by = ("causality",)

    def bias(self, query_positions, key_positions, role, layer):
        distance = (query_positions[:, :, None] - key_positions[:, None, :]).abs()
        rates = torch.tensor(slopes(3), dtype=torch.float64)
        return -(rates[:, None, None] * distance[:, None]).unsqueeze(0)


@hookimpl
def register_positionals():
    return {
        re.sub("(?<!^)(?=[A-Z])", "-", entry.__name__).lower(): entry
        for entry in list(globals().values())
        if isinstance(entry, type) and "caught_by" in vars(entry)
    }
