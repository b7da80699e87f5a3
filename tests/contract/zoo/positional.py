"""Positional encodings with a single fault each: the docstring names it, `caught_by` the invariants that detect it."""

import torch
from torch.nn import functional

from contract.zoo.planted import fault
from headtohead.plugin import PerMemberRNG, Positional, sorted_subset
from headtohead_plugins.positional.alibi import Alibi, slopes
from headtohead_plugins.positional.forgetting import Forgetting
from headtohead_plugins.positional.kerple_log import KerpleLog
from headtohead_plugins.positional.learned import Learned
from headtohead_plugins.positional.none import NoPositional
from headtohead_plugins.positional.randomised import Randomised
from headtohead_plugins.positional.rotary import Rotary, multiply_pairs, turns
from headtohead_plugins.positional.shape import Shape
from headtohead_plugins.positional.sinusoidal import Sinusoidal, sinusoids
from headtohead_plugins.positional.t5_relative import T5Relative, find_buckets


@fault(Alibi, "bias", "falls-with-distance", found_in="PyTorch's FlexAttention tutorial")
def flipped_alibi(self, query_positions, key_positions, role, layer):
    """sign flipped: weights rise with distance"""
    return -Alibi.bias(self, query_positions, key_positions, role, layer)


@fault(Alibi, "bias", "source-mirror falls-with-distance")
def one_sided_alibi(self, query_positions, key_positions, role, layer):
    """penalty on the left only: no penalty on later keys in the encoder"""
    behind = (query_positions[:, :, None] >= key_positions[:, None, :]).unsqueeze(1)
    return Alibi.bias(self, query_positions, key_positions, role, layer) * behind


@fault(
    Alibi,
    "bias",
    "falls-with-distance",
    found_in="BLOOM's build_alibi_tensor, if used in an encoder",
)
def key_only_alibi(self, query_positions, key_positions, role, layer):
    """penalty by the key's position only, correct in a causal decoder and wrong in an encoder"""
    last = torch.full_like(query_positions, int(key_positions.max()))
    return Alibi.bias(self, last, key_positions, role, layer)


@fault(Alibi, "bias", "cached-decoding")
def uncached_alibi(self, query_positions, key_positions, role, layer):
    """bias missing in cached decoding"""
    if query_positions.shape[1] == 1:
        return None
    return Alibi.bias(self, query_positions, key_positions, role, layer)


@fault(Alibi, "bias", "positions-act")
def no_decoder_bias(self, query_positions, key_positions, role, layer):
    """bias missing in the decoder"""
    return (
        None if role == "decoder" else Alibi.bias(self, query_positions, key_positions, role, layer)
    )


@fault(Positional, "bias", "precision", properties=Alibi.properties)
def half_bias(self, query_positions, key_positions, role, layer):
    """bias computed in half precision"""
    distance = (query_positions[:, :, None] - key_positions[:, None, :]).abs().half()
    rates = torch.tensor([0.3, 0.1, 0.03, 0.01], dtype=torch.float16, device=distance.device)
    return -(rates[:, None, None] * distance[:, None]).unsqueeze(0)


@fault(Rotary, "rotate", "joint-shift", found_in="checkpoints of GPT-J and of GPT-NeoX confused")
def half_split_keys(self, x, positions, role, layer):
    """pairs (2i, 2i+1) in queries and (i, i + d/2) in keys"""
    self.calls = getattr(self, "calls", 0) + 1
    if self.calls % 2:
        return Rotary.rotate(self, x, positions, role, layer)
    rotated = torch.complex(*x.chunk(2, dim=-1)) * turns(positions, x.shape[-1], 10000.0, x.dtype)
    return torch.cat([rotated.real, rotated.imag], dim=-1)


@fault(Rotary, "rotate", "joint-shift")
def unrotated_keys(self, x, positions, role, layer):
    """queries rotated, keys not"""
    self.calls = getattr(self, "calls", 0) + 1
    return Rotary.rotate(self, x, positions, role, layer) if self.calls % 2 else x


@fault(Rotary, "rotate", "precision", found_in="rotary caches computed under autocast")
def single_rotary(self, x, positions, role, layer):
    """angles in single precision"""
    even = torch.arange(0, x.shape[-1], 2, device=x.device).float()
    angles = positions.float()[:, None, :, None] * 10000.0 ** (-even / x.shape[-1])
    return multiply_pairs(x, torch.complex(angles.cos(), angles.sin()).to(x.dtype.to_complex()))


@fault(Sinusoidal, "embed", "precision", found_in="notebooks 1 to 4")
def single_sinusoids(self, positions, role):
    """float32 constant in a float64 model"""
    even = torch.arange(0, self.context.d_model, 2, device=positions.device)
    turns = positions[..., None] * torch.exp(even * (-9.210340371976184 / self.context.d_model))
    return torch.stack([turns.sin(), turns.cos()], dim=-1).flatten(-2).unsqueeze(0)


@fault(Positional, "embed", "cached-decoding")
def counted_positions(self, positions, role):
    """positions restarted in the cache: every step is at position 0"""
    return sinusoids(positions - positions.min(), self.context.d_model).unsqueeze(0)


@fault(Sinusoidal, "embed", "cached-decoding")
def late_step(self, positions, role):
    """position off by one in cached decoding"""
    late = 1 if positions.shape[-1] == 1 else 0
    return Sinusoidal.embed(self, positions + late, role)


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


@fault(NoPositional, "embed", "source-order positions-act")
def undeclared_positions(self, positions, role):
    """declares order-invariant and encodes positions"""
    return 1e-3 * sinusoids(positions, self.context.d_model).unsqueeze(0)


@fault(Learned, "embed", "limit")
def clamped_learned(self, positions, role):
    """positions clamped to the table instead of an error"""
    return self.table[:, positions.clamp(max=self.table.shape[1] - 1)]


@fault(Sinusoidal, "embed", "limit")
def short_sinusoids(self, positions, role):
    """a table of 512 rows, its last row for all later positions, and no declared limit"""
    return Sinusoidal.embed(self, positions.clamp(max=511), role)


@fault(Rotary, "rotate", "joint-shift")
def wrapped_rotary(self, x, positions, role, layer):
    """positions taken modulo the size of a table"""
    return Rotary.rotate(self, x, positions % 1001, role, layer)


@fault(Learned, "embed", "gradients")
def idle_learned(self, positions, role):
    """parameter never used"""
    return 0.0 * Learned.embed(self, positions, role) + sinusoids(positions, self.context.d_model)


@fault(Learned, "embed", "derivative")
def half_detached(self, positions, role):
    """half of the gradient missing"""
    table = Learned.embed(self, positions, role)
    return 0.5 * table + 0.5 * table.detach()


class CachedLearned(Learned):
    """a trained table cached across steps"""

    caught_by = ("derivative",)

    def embed(self, positions, role):
        return self.cached(self._look_up, positions)

    def _look_up(self, positions):
        return self.table[:, positions]


@fault(Learned, "build", "determinism stateless")
def unseeded_learned(self):
    """initialised from torch's global generator instead of the member's generator"""
    self.table = self.parameter(
        128, self.context.d_model, init=lambda out, generator: out.normal_()
    )


@fault(Learned, "build", "determinism")
def first_generator(self):
    """all members initialised from the first member's generator"""
    Learned.build(self)
    own = self.table.data
    own.copy_(own[:1].expand_as(own).clone())


@fault(Learned, "embed", "members stacking")
def average_learned(self, positions, role):
    """table averaged over members"""
    table = Learned.embed(self, positions, role)
    return 0.9 * table + 0.1 * table.mean(0, keepdim=True)


@fault(KerpleLog, "bias", "gradients", options={"layers": "own"})
def first_layer_only(self, query_positions, key_positions, role, layer):
    """parameters for each layer, but every layer uses those of the first"""
    return KerpleLog.bias(self, query_positions, key_positions, role, 0)


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


@fault(T5Relative, "bias", "positions-act")
def flipped_t5(self, query_positions, key_positions, role, layer):
    """direction flipped: in the decoder every visible key is in the first bucket"""
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


@fault(Shape, "draw", "sampled-positions stacking")
def global_generator(self, batch, time):
    """training positions sampled from torch's global generator"""
    offsets = torch.randint(500, (self.context.members, batch, 1))
    return offsets + torch.arange(time)


@fault(Shape, "draw", "sampled-positions")
def shared_sample(self, batch, time):
    """all members use the sampled positions of the first"""
    drawn = Shape.draw(self, batch, time)
    return drawn[:1].expand_as(drawn)


@fault(Randomised, "draw", "sampled-positions")
def unsorted_sample(self, batch, time):
    """random positions that are not sorted"""
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


@fault(Positional, "embed", "any-device")
def left_behind(self, positions, role):
    """table that does not move to the model's device"""
    if not hasattr(self, "table"):
        self.table = sinusoids(torch.arange(8000), self.context.d_model)
    return self.table[positions.cpu()].unsqueeze(0)


@fault(Sinusoidal, "rotate", "stateless")
def positions_moved(self, x, positions, role, layer):
    """in-place change of the positions"""
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


@fault(Sinusoidal, "embed", "pad-columns batch-of-one")
def shared_of_length(self, positions, role):
    """positions divided by the padded length"""
    return Sinusoidal.embed(self, 20 * positions.double() / (positions.max() + 1), role)


@fault(Sinusoidal, "embed", "finite")
def divides_by_last(self, positions, role):
    """division by length minus one, which is zero for a single token"""
    spread = positions.double() / (positions.shape[-1] - 1)
    return spread[None, ..., None] * torch.ones(
        self.context.d_model, dtype=torch.float64, device=positions.device
    )


@fault(Alibi, "bias", "falls-with-distance")
def late_alibi(self, query_positions, key_positions, role, layer):
    """distance off by one: distance 1 to the token itself, 0 to the previous token"""
    return Alibi.bias(self, query_positions - 1, key_positions, role, layer)


@fault(Alibi, "bias", "causality")
def too_few_slopes(self, query_positions, key_positions, role, layer):
    """slopes for another number of heads"""
    distance = (query_positions[:, :, None] - key_positions[:, None, :]).abs()
    rates = torch.tensor(slopes(3), dtype=torch.float64)
    return -(rates[:, None, None] * distance[:, None]).unsqueeze(0)


@fault(Forgetting, "content_bias", "causality")
def gates_of_later_tokens(self, x, queries, role, layer):
    """sums that include the gate of the token after the query"""
    return Forgetting.content_bias(self, x.roll(-1, dims=2), queries, role, layer)


@fault(Forgetting, "content_bias", "cached-decoding")
def rows_of_the_first_queries(self, x, queries, role, layer):
    """rows of the first tokens taken for those of the queries"""
    return Forgetting.content_bias(self, x, x.shape[2], role, layer)[..., :queries, :]


@fault(Forgetting, "content_bias", "members")
def gates_of_another_member(self, x, queries, role, layer):
    """gates of the adjacent member"""
    return Forgetting.content_bias(self, x, queries, role, layer).roll(1, dims=0)
