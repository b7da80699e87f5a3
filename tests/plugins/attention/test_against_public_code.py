"""Styles against public implementations on PyPI.

x-transformers computes its softmax in float32 (except under qk_norm), hence the larger tolerance. It departs from
the papers at three points, each of which is tested: it adds the scores before talking heads to the mixed scores, its
sigmoid has no bias, and its groups of query heads are interleaved. transformers has differential attention only as
part of DiffLlama, with other pairs of heads and without a gain.
"""

import importlib
import math
import warnings
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

from headtohead.model.attention_context import AttentionContext
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config

pytestmark = (
    pytest.mark.slow
)  # importing the libraries takes seconds; the loops of the neighbour file do not

HEADS, WIDTH, SIZE = 4, 16, 4
DOUBLE, SINGLE = 1e-12, 1e-6
ZERO_ANGLES = torch.ones(3, 5, SIZE).double(), torch.zeros(3, 5, SIZE).double()


class Ours:
    """A style, with masks, inputs, outputs and the recorded tensors of each member."""

    def __init__(self, style, role="encoder", positional="none", layer=0, gain=None):
        subject = Subject(tiny_config(positional, style, bias=False))
        self.attention, self.mask = (
            getattr(subject.model, role)[layer].attention,
            subject.mask(role),
        )
        self.x, _ = subject.activations(role)
        context, self.seen = subject.attention_context(role, mask=self.mask), {}
        with torch.no_grad():
            if gain is not None:
                self.attention.style.gain.fill_(gain)
            self.found, _ = self.attention(self.x, None, context)
            self.attention(self.x, None, context, None, self.seen.__setitem__)

    def added(self, member, value):
        """Return the mask of a member as numbers that are added to scores."""
        mask = self.mask[member]
        return torch.zeros(mask.shape).double().masked_fill(~mask, value)[:, None]


def theirs(attention, member, kv_heads=HEADS, **choices):
    """Return x-transformers' attention with the projections of one member."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch.jit.script, at import
        from x_transformers.x_transformers import Attention
    module = Attention(WIDTH, dim_head=SIZE, heads=HEADS, kv_heads=kv_heads, **choices).double()
    weights = attention.state_dict()
    widths = [WIDTH, kv_heads * SIZE, kv_heads * SIZE]
    parts = weights["queries_keys_values.weight"][member].split(widths, dim=-1)
    with torch.no_grad():
        for name, part in zip(("to_q", "to_k", "to_v"), parts, strict=True):
            getattr(module, name).weight.copy_(part.T)
        module.to_out.weight.copy_(weights["output.weight"][member].T)
    return module


def differences(module_of, style, **options):
    """Return the largest difference of any member at positions without padding."""
    own = Ours(style, **options)
    return max(
        difference_without_padding(
            module_of(own.attention, member), own, own.mask[member][:, 0], member
        )
        for member in range(2)
    )


def difference_without_padding(module, own, live, member):
    """Return the largest difference at positions without padding; x-transformers returns 0 for padding."""
    with torch.no_grad():
        return float((module(own.x[member], mask=live) - own.found[member])[live].abs().max())


def with_heads(before, behind, **choices):
    """Return x-transformers' talking heads with the given matrices of a member."""

    def module_of(attention, member):
        module = theirs(attention, member, pre_talking_heads=True, post_talking_heads=True)
        style = attention.style
        with torch.no_grad():
            for conv, matrix in (
                (module.attend.pre_softmax_talking_heads, before(style.before[member])),
                (module.attend.post_softmax_talking_heads, behind(style.after[member])),
            ):
                conv.weight.copy_(matrix.T[:, :, None, None])
        return module

    return module_of


def test_multi_query_equals_x_transformers_with_a_single_key_and_value_head():
    assert differences(lambda a, m: theirs(a, m, kv_heads=1), "multi-query") < SINGLE


def test_qk_norm_equals_x_transformers_if_the_learned_scale_is_the_fixed_scale():
    assert (
        differences(lambda a, m: theirs(a, m, qk_norm=True, qk_norm_scale=10), "qk-norm", gain=10.0)
        < DOUBLE
    )


def test_qk_norm_by_root_mean_square_equals_x_transformers_with_a_gain_per_head():
    def module_of(attention, member):
        module = theirs(attention, member, qk_rmsnorm=True)
        with torch.no_grad():
            # The gain of x-transformers is initialised to 0 and added to 1.
            gain = attention.style.gain[member] - 1
            module.q_rmsnorm.gamma.copy_(gain[:, None, None].expand(-1, 1, SIZE))
        return module

    assert differences(module_of, {"name": "qk-norm", "norm": "rms"}) < SINGLE


def test_talking_heads_equal_x_transformers_without_its_added_scores():
    style = {"name": "talking-heads", "start": "random"}
    eye = torch.eye(HEADS, dtype=torch.float64)
    fixed = with_heads(lambda matrix: matrix - eye, lambda matrix: matrix)
    as_written = with_heads(lambda matrix: matrix, lambda matrix: matrix)
    assert differences(fixed, style) < SINGLE
    assert differences(as_written, style) > 1e-2


def test_sigmoid_equals_x_transformers_except_for_the_bias():
    own = Ours("sigmoid")
    for member in range(2):
        module = theirs(own.attention, member, sigmoid=True)
        live = own.mask[member][:, 0]
        bias = -live.sum(-1).double().log()[:, None, None, None]
        assert difference_without_padding(module, own, live, member) > 1e-2
        module.attend.attn_fn = lambda scores, bias=bias: torch.sigmoid(scores + bias)
        assert difference_without_padding(module, own, live, member) < DOUBLE


@pytest.mark.parametrize("interleaved", [True, False])
def test_groups_of_x_transformers_are_interleaved(interleaved):
    """Query head i of x-transformers uses key head i mod groups; the paper's groups are adjacent heads."""
    style = {"name": "grouped-query", "kv_heads": 2}
    order = torch.arange(HEADS).view(2, 2).T.flatten() if interleaved else torch.arange(HEADS)
    columns = (order[:, None] * SIZE + torch.arange(SIZE)).flatten()

    def module_of(attention, member):
        module = theirs(attention, member, kv_heads=2)
        with torch.no_grad():
            module.to_q.weight.copy_(module.to_q.weight[columns])
            module.to_out.weight.copy_(module.to_out.weight[:, columns])
        return module

    found = differences(module_of, style)
    assert found < SINGLE if interleaved else found > 1e-2


@pytest.mark.parametrize("layer", [0, 1])
def test_differential_equals_diffllama_with_its_pairs_of_heads(layer):
    """DiffLlama pairs map i with map i + h/2 and splits values likewise; its gain is 1."""
    from transformers import DiffLlamaConfig
    from transformers.models.diffllama.modeling_diffllama import DiffLlamaAttention

    own = Ours("differential", "decoder", layer=layer, gain=1.0)
    attention = own.attention
    assert attention.context.layer == layer
    halves = torch.arange(HEADS).view(-1, 2).T.flatten()
    columns = (halves[:, None] * SIZE + torch.arange(SIZE)).flatten()
    weights = attention.state_dict()
    heads = {"num_attention_heads": HEADS, "num_key_value_heads": HEADS}
    config = DiffLlamaConfig(
        hidden_size=WIDTH, rms_norm_eps=1e-5, attn_implementation="eager", **heads
    )
    for member in range(2):
        module = DiffLlamaAttention(config, layer).double()
        q, k, v = weights["queries_keys_values.weight"][member].split(WIDTH, dim=-1)
        with torch.no_grad():
            module.q_proj.weight.copy_(q.T[columns])
            module.k_proj.weight.copy_(k.T[columns])
            # Value head i of ours is as wide as two heads of DiffLlama: i and i + h/2.
            module.v_proj.weight.copy_(v.T[columns])
            module.o_proj.weight.copy_(weights["output.weight"][member].T)
            for name, vector in zip(
                ("q1", "k1", "q2", "k2"), attention.style.vectors[member], strict=True
            ):
                getattr(module, f"lambda_{name}").copy_(vector)
            expected, _ = module(own.x[member], ZERO_ANGLES, own.added(member, -math.inf))
        torch.testing.assert_close(own.found[member], expected, rtol=0, atol=SINGLE)


def test_gated_equals_the_attention_of_qwen_without_its_norms():
    from transformers import Qwen3NextConfig
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextAttention

    own = Ours("gated", "decoder")
    heads = {"num_attention_heads": HEADS, "num_key_value_heads": HEADS, "head_dim": SIZE}
    config = Qwen3NextConfig(hidden_size=WIDTH, attn_implementation="eager", **heads)
    for member in range(2):
        module = Qwen3NextAttention(config, 0).double()
        module.q_norm = module.k_norm = torch.nn.Identity()
        weights = {name: value[member].T for name, value in own.attention.state_dict().items()}
        q, k, v = weights["queries_keys_values.weight"].split(WIDTH)
        gate = weights["style.gate"].unflatten(0, (HEADS, SIZE))
        queries = torch.cat([q.unflatten(0, (HEADS, SIZE)), gate], 1).flatten(0, 1)
        carried = {"q_proj": queries, "k_proj": k, "v_proj": v, "o_proj": weights["output.weight"]}
        module.load_state_dict({f"{name}.weight": value for name, value in carried.items()})
        with torch.no_grad():
            expected, _ = module(own.x[member], ZERO_ANGLES, own.added(member, -math.inf))
        torch.testing.assert_close(own.found[member], expected, rtol=0, atol=SINGLE)


@pytest.mark.parametrize(("style", "family"), [("sinks", "gpt_oss"), ("soft-cap", "gemma2")])
def test_weights_and_outputs_of_heads_equal_transformers(style, family):
    chosen = {"name": style, "cap": 2.0} if style == "soft-cap" else style
    own = Ours(chosen, "decoder")
    theirs = importlib.import_module(
        f"transformers.models.{family}.modeling_{family}"
    ).eager_attention_forward
    for member in range(2):
        module = SimpleNamespace(num_key_value_groups=1, training=False, is_causal=True)
        named = {"softcap": 2.0}
        if style == "sinks":
            module.sinks, named = own.attention.style.sinks[member], {}
        q, k, v = (own.seen[name][member] for name in ("queries", "keys", "values"))
        heads, weights = theirs(
            module, q, k, v, own.added(member, -1e9), scaling=SIZE**-0.5, **named
        )
        live = own.mask[member].any(-1)
        torch.testing.assert_close(own.seen["weights"][member], weights, rtol=0, atol=SINGLE)
        torch.testing.assert_close(
            own.seen["heads"][member].transpose(1, 2)[live], heads[live], rtol=0, atol=SINGLE
        )


@pytest.mark.parametrize("query_rank", [None, 6])
def test_multi_head_latent_with_rotary_equals_deepseek(query_rank):
    """DeepSeek has the rotary coordinates last."""
    from transformers import DeepseekV2Config
    from transformers.models.deepseek_v2.modeling_deepseek_v2 import (
        DeepseekV2Attention,
        DeepseekV2RotaryEmbedding,
    )

    style = {"name": "multi-head-latent", "kv_rank": 5, "query_rank": query_rank}
    own = Ours(style, "decoder", {"name": "rotary", "fraction": 1 / 3})
    attention, x = own.attention, own.x
    sizes = {
        "kv_lora_rank": 5,
        "q_lora_rank": query_rank,
        "qk_rope_head_dim": 2,
        "qk_nope_head_dim": SIZE,
    }
    config = DeepseekV2Config(
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        v_head_dim=SIZE,
        attn_implementation="eager",
        **sizes,
    )
    turns = DeepseekV2RotaryEmbedding(config)(x[0], torch.arange(x.shape[2])[None])
    last = torch.arange(2 + SIZE).roll(-2)
    for member in range(2):
        module = DeepseekV2Attention(config, 0).double()
        weights = {name: value[member].t() for name, value in attention.style.named_parameters()}
        queries = weights["query_up"].unflatten(0, (HEADS, -1))[:, last].flatten(0, 1)
        carried = {
            "kv_a_proj_with_mqa": weights["down"],
            "kv_a_layernorm": weights["gain"],
            "kv_b_proj": weights["up"],
            "o_proj": attention.output.weight[member].T,
            **(
                {"q_a_proj": weights["query_down"], "q_a_layernorm": weights["query_gain"]}
                if query_rank
                else {}
            ),
            ("q_b_proj" if query_rank else "q_proj"): queries,
        }
        module.load_state_dict({f"{name}.weight": value for name, value in carried.items()})
        with torch.no_grad():
            expected, _ = module(x[member], own.added(member, -1e9), position_embeddings=turns)
        live = own.mask[member].any(-1)
        torch.testing.assert_close(own.found[member][live], expected[live], rtol=0, atol=SINGLE)


@pytest.mark.parametrize("path", ["explicit", "fast"])
def test_gated_delta_equals_the_recurrence_and_the_gated_norm_of_qwen(path):
    """Qwen3-Next adds 1e-6 to squared lengths before it normalises queries and keys."""
    from transformers.models.qwen3_next import modeling_qwen3_next as qwen

    subject = Subject(tiny_config("none", {"decoder": "gated-delta"}, bias=False))
    attention, declared = (
        subject.attention("decoder"),
        frozenset({"hides-future", "shows-the-rest"}),
    )
    time = 70
    x = (
        torch.randn(
            2, 3, time, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
        )
        * 3
    )
    positions, mask = (
        torch.arange(time)[None],
        torch.ones(1, 1, 1, time, time, dtype=torch.bool).tril(),
    )
    record = {}.__setitem__ if path == "explicit" else None
    with torch.no_grad():
        found, _ = attention(
            x, None, AttentionContext(positions, positions, mask, declared=declared), None, record
        )
    weights = dict(attention.style.named_parameters())
    for member in range(2):
        parts = (x[member] @ weights["project_in"][member]).unflatten(-1, (HEADS, -1))
        q, k, v, gates = parts.split([SIZE, SIZE, SIZE, 2], dim=-1)
        rate, step = weights["rate"][member].exp(), weights["step"][member]
        decay = -rate * functional.softplus(gates[..., 0] + step)
        beta = gates[..., 1].sigmoid()
        heads, _ = qwen.torch_recurrent_gated_delta_rule(
            q, k, v, decay, beta, use_qk_l2norm_in_kernel=True
        )
        norm = qwen.Qwen3NextRMSNormGated(
            SIZE, eps=1e-5
        ).double()  # 1e-5 in the authors' code, 1e-6 in Qwen3-Next
        with torch.no_grad():
            norm.weight.copy_(weights["gain"][member])
            gate = (x[member] @ weights["gate"][member]).unflatten(-1, (HEADS, -1))
            expected = norm(heads, gate).flatten(-2) @ attention.output.weight[member]
        torch.testing.assert_close(found[member], expected, rtol=0, atol=1e-5)
