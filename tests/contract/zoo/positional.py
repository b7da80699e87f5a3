"""Encodings with one fault each. The docstring names it; ``caught_by`` who must see it."""

import re
from typing import ClassVar

import torch
from torch.nn import functional

from headtohead import PerMemberRNG, Positional, hookimpl, sorted_subset
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
    """sign flipped: what is far away weighs more"""

    seen = "PyTorch's FlexAttention tutorial"
    caught_by = ("falls-with-distance",)

    def bias(self, query_positions, key_positions, role, layer):
        return -super().bias(query_positions, key_positions, role, layer)


class OneSidedAlibi(Alibi):
    """penalty on one side only: the encoder's future costs nothing"""

    caught_by = ("source-mirror", "falls-with-distance")

    def bias(self, query_positions, key_positions, role, layer):
        behind = (query_positions[:, :, None] >= key_positions[:, None, :]).unsqueeze(1)
        return super().bias(query_positions, key_positions, role, layer) * behind


class KeyOnlyAlibi(Alibi):
    """penalty by the key's place alone, right in a causal decoder and wrong in an encoder"""

    seen = "BLOOM's build_alibi_tensor, if used in an encoder"
    caught_by = ("falls-with-distance",)

    def bias(self, query_positions, key_positions, role, layer):
        last = torch.full_like(query_positions, int(key_positions.max()))
        return super().bias(last, key_positions, role, layer)


class ForgetfulAlibi(Alibi):
    """bias forgotten in cached decoding"""

    caught_by = ("cached-decoding",)

    def bias(self, query_positions, key_positions, role, layer):
        if query_positions.shape[1] == 1:
            return None
        return super().bias(query_positions, key_positions, role, layer)


class DeafDecoder(Alibi):
    """bias forgotten in the decoder"""

    caught_by = ("places-act",)

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

    seen = "checkpoints of GPT-J and of GPT-NeoX confused"
    caught_by = ("joint-shift",)

    def rotate(self, x, positions, role):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls % 2:
            return super().rotate(x, positions, role)
        cos, sin = angles(positions, x.shape[-1], 10000.0, x.dtype)
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


class QueriesAlone(Rotary):
    """queries turned, keys not"""

    caught_by = ("joint-shift",)

    def rotate(self, x, positions, role):
        self.calls = getattr(self, "calls", 0) + 1
        return super().rotate(x, positions, role) if self.calls % 2 else x


class SingleRotary(Rotary):
    """angles in single precision"""

    seen = "rotary caches computed under autocast"
    caught_by = ("precision",)

    def rotate(self, x, positions, role):
        even = torch.arange(0, x.shape[-1], 2, device=x.device).float()
        turns = positions.float()[:, None, :, None] * 10000.0 ** (-even / x.shape[-1])
        return rotate_pairs(x, turns.cos().to(x.dtype), turns.sin().to(x.dtype))


class SingleSinusoids(Sinusoidal):
    """float32 constant in a float64 model"""

    seen = "notebooks 1 to 4"
    caught_by = ("precision",)

    def embed(self, positions, role):
        even = torch.arange(0, self.context.d_model, 2, device=positions.device)
        turns = positions[..., None] * torch.exp(even * (-9.210340371976184 / self.context.d_model))
        return torch.stack([turns.sin(), turns.cos()], dim=-1).flatten(-2).unsqueeze(0)


class CountedPositions(Positional):
    """positions restarted in the cache: every step stands at the start"""

    caught_by = ("cached-decoding",)

    def embed(self, positions, role):
        return sinusoids(positions - positions.min(), self.context.d_model).unsqueeze(0)


class LateStep(Sinusoidal):
    """position off by one in cached decoding"""

    caught_by = ("cached-decoding",)

    def embed(self, positions, role):
        late = 1 if positions.shape[-1] == 1 else 0
        return super().embed(positions + late, role)


class ByShape(Sinusoidal):
    """table remembered by shape, whatever the positions are"""

    caught_by = ("cached-decoding",)

    def build(self):
        self.tables = {}

    def embed(self, positions, role):
        key = (positions.shape, positions.device)
        if key not in self.tables:
            self.tables[key] = sinusoids(positions, self.context.d_model).unsqueeze(0)
        return self.tables[key]


class TellingNone(NoPositional):
    """an encoding that says it tells no places, and tells them"""

    caught_by = ("source-order", "places-act")

    def embed(self, positions, role):
        return 1e-3 * sinusoids(positions, self.context.d_model).unsqueeze(0)


class ClampedLearned(Learned):
    """table clamped instead of refused"""

    caught_by = ("limit",)

    def embed(self, positions, role):
        return self.table[:, positions.clamp(max=self.table.shape[1] - 1)]


class ShortSinusoids(Sinusoidal):
    """a table of 512 rows, its last one for all places beyond, and no limit declared"""

    caught_by = ("limit",)

    def embed(self, positions, role):
        return super().embed(positions.clamp(max=511), role)


class WrappedRotary(Rotary):
    """positions taken modulo the size of a table"""

    caught_by = ("joint-shift",)

    def rotate(self, x, positions, role):
        return super().rotate(x, positions % 1001, role)


class MiscountedLearned(Learned):
    """wrong parameter count"""

    caught_by = ("parameter-count",)

    @classmethod
    def parameter_count(cls, options, context):
        return options.max_length * (context.d_model - 1)


class IdleLearned(Learned):
    """parameter never used"""

    caught_by = ("gradients",)

    def embed(self, positions, role):
        return 0.0 * super().embed(positions, role) + sinusoids(positions, self.context.d_model)


class HalfDetached(Learned):
    """part of the gradient cut off"""

    caught_by = ("derivative",)

    def embed(self, positions, role):
        table = super().embed(positions, role)
        return 0.5 * table + 0.5 * table.detach()


class RememberedLearned(Learned):
    """a trained table remembered across steps"""

    caught_by = ("derivative",)

    def embed(self, positions, role):
        return self.cached(self._look_up, positions)

    def _look_up(self, positions):
        return self.table[:, positions]


class UnseededLearned(Learned):
    """drawn from torch's own stream instead of the member's generator"""

    caught_by = ("determinism", "stateless")

    def build(self):
        shape = (self.context.members, 128, self.context.d_model)
        device = "meta" if self.context.generators[0] is None else "cpu"
        self.table = torch.nn.Parameter(torch.randn(shape, device=device))


class FirstGenerator(Learned):
    """wrong member's generator: all members drawn from the first one's"""

    caught_by = ("determinism",)

    def build(self):
        super().build()
        own = self.table.data
        own.copy_(own[:1].expand_as(own).clone())


class AverageLearned(Learned):
    """member of a stack leaking into its neighbour"""

    caught_by = ("members", "stacking")

    def embed(self, positions, role):
        table = super().embed(positions, role)
        return 0.9 * table + 0.1 * table.mean(0, keepdim=True)


class FirstLayerOnly(KerpleLog):
    """a set for each layer, and every layer reads the first"""

    caught_by = ("gradients",)
    options: ClassVar = {"layers": "own"}

    def bias(self, query_positions, key_positions, role, layer):
        return super().bias(query_positions, key_positions, role, 0)


class FirstHeadOnly(Positional):
    """a slope for each head, and every head reads the first"""

    caught_by = ("gradients",)
    properties = KerpleLog.properties

    def build(self):
        self.raw = self.parameter(self.context.geometry.heads)

    @classmethod
    def parameter_count(cls, options, context):
        return context.geometry.heads

    def bias(self, query_positions, key_positions, role, layer):
        distance = (query_positions[:, :, None] - key_positions[:, None, :]).abs()
        rate = functional.softplus(self.raw)[:, :1, None, None]
        return -(rate * distance).unsqueeze(2)


class TurnedT5(T5Relative):
    """direction flipped: in the decoder every key that is seen falls into the first bucket"""

    caught_by = ("places-act",)

    def bias(self, query_positions, key_positions, role, layer):
        found = find_buckets(key_positions, query_positions, 32, 128, role != "decoder")
        if role == "decoder":
            found = torch.where(found > 0, 0 * found, found)
        return self.table[:, :, found].transpose(1, 2)


class RelativeClaim(Sinusoidal):
    """promise claimed and not kept: relative"""

    caught_by = ("joint-shift",)
    properties = frozenset({"relative"})


class FallsClaim(T5Relative):
    """promise claimed and not kept: falls with distance"""

    caught_by = ("falls-with-distance",)
    properties = frozenset({"relative", "falls-with-distance"})


class MirrorClaim(Rotary):
    """promise claimed and not kept: mirror-invariant"""

    caught_by = ("source-mirror",)
    properties = frozenset({"relative", "mirror-invariant"})


class OrderClaim(Sinusoidal):
    """promise claimed and not kept: order-invariant"""

    caught_by = ("source-order", "places-act")
    properties = frozenset({"order-invariant"})


class UnclaimedRelative(Rotary):
    """promise kept and not made"""

    caught_by = ("joint-shift",)
    properties = frozenset()


class DrawnFromTorch(Shape):
    """training positions drawn from torch's own stream"""

    caught_by = ("drawn-positions", "stacking")

    def draw(self, batch, time):
        offsets = torch.randint(500, (self.context.members, batch, 1))
        return offsets + torch.arange(time)


class OneDrawForAll(Shape):
    """all members draw the positions of the first"""

    caught_by = ("drawn-positions",)

    def draw(self, batch, time):
        drawn = super().draw(batch, time)
        return drawn[:1].expand_as(drawn)


class UnsortedDraw(Randomised):
    """random positions that are not sorted"""

    caught_by = ("drawn-positions",)

    def draw(self, batch, time):
        return self.draws(lambda own: sorted_subset(2048, time, batch, own).flip(-1))


class ForgottenDraws(Shape):
    """draws begin anew after a resume"""

    caught_by = ("drawn-positions", "resume")

    def build(self):
        super().build()
        self.count = 0

    def draw(self, batch, time):
        self.count += 1
        shifts = []
        for state in self.draws.get_buffer("state").tolist():
            own = torch.Generator().manual_seed(state[0] + self.count)
            shifts.append(torch.randint(500, (batch, 1), generator=own))
        return torch.stack(shifts) + torch.arange(time)


class DrawsWhileEvaluating(Sinusoidal):
    """offset drawn in evaluation too"""

    caught_by = ("determinism",)

    def build(self):
        self.draws = PerMemberRNG(self.context)

    def embed(self, positions, role):
        offsets = self.draws(lambda own: torch.randint(5, (1,), generator=own))
        width = self.context.d_model
        return torch.stack([sinusoids(positions + one, width) for one in offsets])


class LeftBehind(Positional):
    """table that is not moved with the model's device"""

    caught_by = ("any-device",)

    def build(self):
        self.table = sinusoids(torch.arange(8000), self.context.d_model)

    def embed(self, positions, role):
        return self.table[positions.cpu()].unsqueeze(0)


class PositionsMoved(Sinusoidal):
    """in-place change of inputs: positions"""

    caught_by = ("stateless",)

    def rotate(self, x, positions, role):
        positions += 1
        return x


class BufferWithoutMembers(Sinusoidal):
    """saved table without a member axis: it cannot be given to one member"""

    caught_by = ("checkpoint",)

    def build(self):
        self.register_buffer("table", sinusoids(torch.arange(100), self.context.d_model))


class UnsavedDraw(Positional):
    """random frequencies that are drawn and not saved"""

    caught_by = ("checkpoint",)

    def build(self):
        start = self.parameter(self.context.d_model // 2).detach()
        self.register_buffer("rates", start, persistent=False)

    def embed(self, positions, role):
        turns = positions[None, ..., None].double() * self.rates.double()[:, None, None]
        return torch.cat([turns.sin(), turns.cos()], dim=-1)


class SharedOfLength(Sinusoidal):
    """positions divided by the padded length"""

    caught_by = ("pad-columns", "batch-of-one")

    def embed(self, positions, role):
        return super().embed(20 * positions.double() / (positions.max() + 1), role)


class DividesByLast(Sinusoidal):
    """division by length minus one: nothing is left of a single token"""

    caught_by = ("finite",)

    def embed(self, positions, role):
        spread = positions.double() / (positions.shape[-1] - 1)
        return spread[None, ..., None] * torch.ones(self.context.d_model, dtype=torch.float64, device=positions.device)


class LateAlibi(Alibi):
    """distance off by one: the token itself is a step away, its neighbour behind is at zero"""

    caught_by = ("falls-with-distance",)

    def bias(self, query_positions, key_positions, role, layer):
        return super().bias(query_positions - 1, key_positions, role, layer)


class TooFewSlopes(Alibi):
    """slopes made for another number of heads"""

    caught_by = ("causality",)

    def bias(self, query_positions, key_positions, role, layer):
        distance = (query_positions[:, :, None] - key_positions[:, None, :]).abs()
        rates = torch.tensor(slopes(3), dtype=torch.float64)
        return -(rates[:, None, None] * distance[:, None]).unsqueeze(0)


@hookimpl
def register_positionals():
    return {
        re.sub("(?<!^)(?=[A-Z])", "-", one.__name__).lower(): one
        for one in list(globals().values())
        if isinstance(one, type) and "caught_by" in vars(one)
    }
