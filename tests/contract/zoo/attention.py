"""Attention styles with a single fault each: the docstring names it, `caught_by` the invariants that detect it."""

from typing import ClassVar

import torch
from torch.nn import functional

from contract.zoo.planted import fault
from headtohead.plugin import Geometry
from headtohead_plugins.attention.canon import Canon, ShortConvolution
from headtohead_plugins.attention.exclusive import Exclusive
from headtohead_plugins.attention.gated import Gated
from headtohead_plugins.attention.random import Random
from headtohead_plugins.attention.sigmoid import Sigmoid
from headtohead_plugins.attention.sinks import Sinks
from headtohead_plugins.attention.smear import Smear
from headtohead_plugins.attention.split_heads import SplitHeads
from headtohead_plugins.attention.uniform import Uniform
from headtohead_plugins.attention.value_residual import ValueResidual


@fault(SplitHeads, "transform", "members stacking")
def leaking_members(self, q, k):
    """queries of a member include those of the adjacent member"""
    return q + 1e-3 * q.roll(1, dims=0), k


@fault(SplitHeads, "transform", "batch-of-one")
def leaking_sentences(self, q, k):
    """batch-dependent output: queries include those of the adjacent sentence"""
    return q + 1e-3 * q.roll(1, dims=1), k


@fault(SplitHeads, "transform", "batch-of-one", config={"masking": "none"})
def batch_normalised(self, q, k):
    """queries normalised over the batch"""
    return q - q.mean(1, keepdim=True), k


@fault(SplitHeads, "normalise", "rows-sum-to-one causality")
def over_queries(self, scores, mask):
    """normalised over the wrong axis: queries"""
    return torch.softmax(scores, dim=-2)


@fault(SplitHeads, "normalise", "rows-sum-to-one")
def over_heads(self, scores, mask):
    """normalised over the wrong axis: heads"""
    return torch.softmax(scores, dim=2).nan_to_num()


@fault(SplitHeads, "normalise", "rows-sum-to-one")
def negative_weights(self, scores, mask):
    """negative weights that the style does not declare"""
    weights = SplitHeads.normalise(self, scores, mask)
    return 2 * weights - weights.roll(1, dims=-1)


@fault(SplitHeads, "normalise", "mask-obeyed target-reaches-logits")
def self_only(self, scores, mask):
    """every token attends to itself only"""
    weights = SplitHeads.normalise(self, scores, mask)
    queries, keys = scores.shape[-2:]
    alone = torch.eye(queries, dtype=scores.dtype, device=scores.device)
    return alone + 0 * weights if queries == keys else weights


@fault(SplitHeads, "geometry", "temperature")
def unscaled(cls, options, model):
    """scale missing on both paths"""
    width = model.d_model // model.heads
    return Geometry(model.heads, model.heads, width, width, 1.0)


@fault(SplitHeads, "geometry", "temperature")
def doubly_scaled(cls, options, model):
    """scale doubled: 1 / d_k"""
    width = model.d_model // model.heads
    return Geometry(model.heads, model.heads, width, width, 1 / width)


@fault(
    SplitHeads,
    "geometry",
    "temperature",
    found_in="hand-written attentions that divide by sqrt(d_model)",
)
def scaled_by_model(cls, options, model):
    """scale by the model's width instead of the head's"""
    width = model.d_model // model.heads
    return Geometry(model.heads, model.heads, width, width, model.d_model**-0.5)


@fault(SplitHeads, "scores", "temperature")
def unscaled_scores(self, q, k, query_positions, key_positions):
    """custom scores without the scale"""
    return q @ k.transpose(-2, -1)


@fault(SplitHeads, "normalise", "masked-keys causality pad-content")
def masked_to_zero(self, scores, mask):
    """masked scores set to 0 instead of -inf"""
    return torch.softmax(scores.masked_fill(scores.isinf(), 0.0), dim=-1)


@fault(SplitHeads, "normalise", "rows-sum-to-one")
def masked_afterwards(self, scores, mask):
    """weights masked after the softmax and not normalised again"""
    weights = torch.softmax(scores.masked_fill(scores.isinf(), 0.0), dim=-1)
    return weights if mask is None else weights * mask


@fault(SplitHeads, "normalise", "masked-rows", found_in="explicit softmax over -inf")
def not_a_number(self, scores, mask):
    """softmax of a fully masked row: NaN"""
    return torch.softmax(scores, dim=-1)


@fault(SplitHeads, "normalise", "finite")
def overflowing(self, scores, mask):
    """softmax without subtracting the largest score"""
    powers = scores.exp()
    return powers / powers.sum(-1, keepdim=True).clamp(min=1e-30)


@fault(SplitHeads, "mix", "determinism stateless")
def always_dropping(self, weights):
    """dropout in evaluation"""
    return functional.dropout(weights, 0.1, training=True)


@fault(SplitHeads, "mix", "stacking")
def global_dropout(self, weights):
    """dropout from torch's global generator"""
    return functional.dropout(weights, 0.1, training=self.training)


@fault(SplitHeads, "mix", "gradients")
def detached_weights(self, weights):
    """queries and keys have no gradient"""
    return weights.detach()


@fault(SplitHeads, "normalise", "derivative")
def half_detached(self, scores, mask):
    """gradient of the softmax's denominator missing"""
    weights = SplitHeads.normalise(self, scores, mask)
    return weights * (weights / weights.clamp(min=1e-9)).detach() + 0.3 * (
        weights.detach() - weights
    )


@fault(SplitHeads, "normalise", "stateless")
def sink_in_place(self, scores, mask):
    """in-place change of the mask"""
    if mask is not None:
        mask[..., 0] = True
    return SplitHeads.normalise(self, scores, mask)


@fault(SplitHeads, "post_heads", "causality pad-columns")
def norm_over_time(self, heads, x, values):
    """outputs of heads normalised over time"""
    return heads - heads.mean(-2, keepdim=True)


@fault(SplitHeads, "transform", "causality cached-decoding")
def queries_late(self, q, k):
    """queries off by one position"""
    return q.roll(1, dims=-2), k


@fault(SplitHeads, "transform", "mask-obeyed cached-decoding")
def keys_late(self, q, k):
    """keys off by one position relative to their values"""
    return q, k.roll(1, dims=-2)


class Gain(SplitHeads):
    """a gain for each head, without a fault"""

    def build(self):
        self.gain = self.parameter(self.context.geometry.heads, std=0.1, mean=1.0)

    def transform(self, q, k):
        return q * self.gain[:, None, :, None, None], k


@fault(Gain, "transform", "gradients")
def idle_gain(self, q, k):
    """parameter never used"""
    return q, k


@fault(Gain, "transform", "gradients")
def first_heads_gain(self, q, k):
    """a gain for each head, but every head uses the first"""
    return q * self.gain[:, :1, None, None, None].transpose(1, 2), k


@fault(Gain, "transform", "members")
def average_gain(self, q, k):
    """gain averaged over members"""
    return q * self.gain.mean(0)[:, None, None], k


@fault(Gain, "build", "determinism stateless")
def unseeded_gain(self):
    """initialised from torch's global generator"""
    self.gain = self.parameter(
        self.context.geometry.heads, init=lambda out, generator: out.normal_(1.0, 0.1)
    )


@fault(SplitHeads, "mix_scores", "precision")
def single_constant(self, scores):
    """float32 constant in a float64 model"""
    return scores * torch.tensor(0.9, device=scores.device)


@fault(
    SplitHeads,
    "mix_scores",
    "precision",
    found_in="softmax in float32 whatever the model's precision",
)
def single_scores(self, scores):
    """scores converted to float32 and back"""
    return scores.float().to(scores.dtype)


@fault(SplitHeads, "mix_scores", "any-device")
def doubles(self, scores):
    """a float64 constant that a float32 model cannot multiply"""
    return scores * torch.full((1,), 0.9, dtype=torch.float64, device=scores.device)


@fault(SplitHeads, "mix_scores", "any-device")
def left_behind(self, scores):
    """a constant that is not moved with the model's device"""
    heads = self.context.geometry.heads
    return scores * torch.linspace(0.9, 1.1, heads).to(scores.dtype)[:, None, None]


class WrongFastPath(SplitHeads):
    """a fast path that ignores the mask"""

    caught_by = ("parity",)

    def normalise(self, scores, mask):
        kept = scores if mask is None else torch.where(mask, scores, 0.0)
        return kept / scores.shape[-1]

    weights = "signed"

    def fast_path(self, q, k, v, mask, may_attend):
        read = q @ (k.transpose(-2, -1) @ v)
        return read * self.context.geometry.scale / k.shape[-2]


class UndeclaredSigmoid(Sigmoid):
    """declares that its weights are a distribution"""

    caught_by = ("rows-sum-to-one",)
    weights = "distribution"


class UndeclaredPositions(Random):
    """scores depend on positions, undeclared"""

    caught_by = ("positions-act", "source-order")
    config: ClassVar = {"positional": "none"}
    position_dependent = False


@fault(Random, "scores", "limit")
def clamped_random(self, q, k, query_positions, key_positions):
    """positions clamped to the table instead of an error"""
    most = self.table.shape[-1] - 1
    rows, columns = query_positions.clamp(max=most)[0], key_positions.clamp(max=most)[0]
    return self.table[:, :, rows][..., columns].unsqueeze(1)


@fault(Uniform, "normalise", "positions-act", config={"positional": "alibi"})
def drops_bias(self, scores, mask):
    """an encoding's bias ignored"""
    return Uniform.normalise(self, torch.where(scores.isinf(), scores, 0.0), mask)


class RunningMean(SplitHeads):
    """running statistics updated in evaluation"""

    caught_by = ("stateless",)

    def build(self):
        self.mean = self.buffer(self.context.geometry.key_width, std=0.0)

    def transform(self, q, k):
        mean = k.detach().flatten(1, 3).mean(1)
        self.mean.lerp_(mean, 0.1)
        return q, k - self.mean[:, None, None, None]


@fault(SplitHeads, "transform", "stateless")
def first_keys(self, q, k):
    """state kept between calls: the first sentence's keys"""
    known = getattr(self, "known", None)
    if known is None or known.shape != k.shape:
        self.known = known = k.detach()
    return q, 0.9 * k + 0.1 * known


@fault(SplitHeads, "normalise", "masked-keys")
def softmax_twice(self, scores, mask):
    """softmax of the softmax"""
    return torch.softmax(SplitHeads.normalise(self, scores, mask), dim=-1)


@fault(SplitHeads, "normalise", "mask-obeyed")
def relu(self, scores, mask):
    """weights that are zero at a visible key"""
    weights = SplitHeads.normalise(self, scores, mask)
    kept = torch.where(weights >= weights.amax(-1, keepdim=True), weights, 0.0)
    return kept / kept.sum(-1, keepdim=True).clamp(min=1e-9)


@fault(SplitHeads, "post_heads", "members")
def normalised_across_members(self, heads, x, values):
    """heads normalised across members"""
    return heads / heads.abs().amax(0, keepdim=True).clamp(min=1e-3)


@fault(Gated, "post_heads", "causality cached-decoding")
def gate_of_the_next_token(self, heads, x, values):
    """gates computed from the next token"""
    return Gated.post_heads(self, heads, x.roll(-1, dims=2), values)


@fault(Gated, "post_heads", "batch-of-one")
def gate_of_the_sentence(self, heads, x, values):
    """gates computed from the mean over the sentences of the batch"""
    return Gated.post_heads(self, heads, x.mean(1, keepdim=True).expand_as(x), values)


@fault(Exclusive, "post_heads", "cached-decoding")
def values_of_the_first_keys(self, heads, x, values):
    """the values of the first keys taken for those of the queries"""
    return Exclusive.post_heads(self, heads, x, values[..., : heads.shape[-2], :])


@fault(ValueResidual, "mix_values", "members")
def first_values_of_another_member(self, values, first):
    """first layer's values of the adjacent member"""
    return ValueResidual.mix_values(self, values, first.roll(1, dims=0))


@fault(ValueResidual, "mix_values", "derivative")
def detached_first_values(self, values, first):
    """first layer's values without a gradient"""
    return ValueResidual.mix_values(self, values, first.detach())


@fault(ValueResidual, "mix_values", "causality cached-decoding")
def next_values(self, values, first):
    """first layer's values off by one position"""
    return ValueResidual.mix_values(self, values, first.roll(-1, dims=-2))


@fault(ShortConvolution, "mix_tokens", "causality pad-content")
def centred_convolution(self, x):
    """a convolution that includes the next token"""
    return ShortConvolution.mix_tokens(self, functional.pad(x, (0, 0, 0, 1)))[:, :, 1:]


@fault(ShortConvolution, "mix_tokens", "batch-of-one", config={"masking": "none"})
def convolution_over_sentences(self, x):
    """a convolution over the sentences of the batch"""
    return ShortConvolution.mix_tokens(self, x.transpose(1, 2)).transpose(1, 2)


def one_later(x):
    """Shift the tokens by one, so that each receives the next one's vector."""
    return functional.pad(x, (0, 0, 0, 1))[:, :, 1:]


@fault(Canon, "mix_projections", "causality")
def next_projections(self, x):
    """a convolution that includes the next token's queries, keys and values"""
    return Canon.mix_projections(self, x + one_later(x))


@fault(Canon, "mix_feed_forward", "causality")
def next_feed_forward_inputs(self, x):
    """a convolution that includes the next token's input of the feed-forward network"""
    return Canon.mix_feed_forward(self, x + one_later(x))


@fault(Canon, "mix_inner", "causality")
def next_inner(self, x):
    """a convolution that includes the next token's vector in the feed-forward network"""
    return Canon.mix_inner(self, x + one_later(x))


@fault(Smear, "mix_embeddings", "causality pad-content")
def smeared_forward(self, x):
    """the next token's embedding instead of the previous one's"""
    return Smear.mix_embeddings(self, x.flip(2)).flip(2)


@fault(Sinks, "fast_path", "parity")
def fused_kernel_without_sinks(self, q, k, v, mask, pattern):
    """sinks missing on the fast path"""
    masked = None if mask is None else torch.where(mask, 0.0, -torch.inf).to(q.dtype)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=masked).nan_to_num()


@fault(Sinks, "normalise", "rows-sum-to-one", weights="distribution")
def undeclared_sinks(self, scores, mask):
    """rows that sum to less than one, undeclared"""
    return Sinks.normalise(self, scores, mask)


@fault(SplitHeads, "transform", "isolation")
def late_layer_leak(self, q, k):
    """keys of every third layer belong to the next token"""
    return q, k.roll(-1, dims=-2) if self.context.layer % 3 == 2 else k


@fault(SplitHeads, "transform", "isolation")
def long_leak(self, q, k):
    """keys of long sentences belong to the next token"""
    return q, k.roll(-1, dims=-2) if k.shape[-2] > 64 else k


@fault(SplitHeads, "transform", "isolation any-device")
def single_precision_leak(self, q, k):
    """keys belong to the next token in float32"""
    return q, k.roll(-1, dims=-2) if k.dtype == torch.float32 else k


@fault(SplitHeads, "transform", "isolation")
def training_statistics(self, q, k):
    """queries normalised over the batch, in training"""
    return q - q.mean(1, keepdim=True) if self.training else q, k


@fault(SplitHeads, "transform", "isolation")
def large_stack(self, q, k):
    """queries include those of the adjacent member, in stacks of more than three members"""
    return q + 1e-3 * q.roll(1, dims=0) if len(q) > 3 else q, k


@fault(SplitHeads, "transform", "isolation")
def large_batch(self, q, k):
    """queries normalised over batches of more than eight sentences"""
    return q - q.mean(1, keepdim=True) if q.shape[1] > 8 else q, k


@fault(SplitHeads, "transform", "isolation")
def counted_passes(self, q, k):
    """training passes counted in an attribute that no checkpoint has"""
    self.passes = getattr(self, "passes", 0) + self.training
    return q if self.passes < 20 else 0.9 * q, k
