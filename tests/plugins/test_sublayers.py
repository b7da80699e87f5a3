"""Feed-forward networks and norms against public code, as plugins of an author, and with planted faults."""

import pytest
import torch
from torch.nn import functional

from headtohead.errors import HeadToHeadError
from headtohead.plugin import FeedForward, Norm
from headtohead.plugins.registry import current
from headtohead.testing import INVARIANTS, Subject, tiny_config
from made import plugin_of, separate_registry

CHECKS = {invariant.name: invariant for invariant in INVARIANTS}


@pytest.mark.parametrize(
    ("name", "activation"), [("swiglu", functional.silu), ("geglu", functional.gelu)]
)
def test_gated_networks_equal_their_equation(name, activation):
    subject = Subject(tiny_config(feed_forward=name, bias=False))
    network, x = subject.feed_forward("decoder"), torch.randn(2, 5, 16, dtype=torch.float64)
    for member in range(2):
        gate, up = network.inner.weight[member].chunk(2, dim=-1)
        inner = activation(x[member] @ gate) * (x[member] @ up)
        expected = inner @ network.outer.weight[member]
        torch.testing.assert_close(network(x)[member], expected, rtol=0, atol=1e-12)


@pytest.mark.slow  # importing the library takes seconds
@pytest.mark.parametrize(("name", "activation"), [("swiglu", "silu"), ("geglu", "gelu")])
def test_gated_networks_equal_the_mlp_of_llama(name, activation):
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaMLP

    subject = Subject(tiny_config(feed_forward=name, bias=False))
    network, x = subject.feed_forward("decoder"), torch.randn(2, 5, 16, dtype=torch.float64)
    config = LlamaConfig(
        hidden_size=16, num_attention_heads=1, intermediate_size=12, hidden_act=activation
    )
    for member in range(2):
        mlp = LlamaMLP(config).double()
        gate, up = network.inner.weight[member].T.chunk(2)
        down = network.outer.weight[member].T
        mlp.load_state_dict(
            {"gate_proj.weight": gate, "up_proj.weight": up, "down_proj.weight": down}
        )
        torch.testing.assert_close(network(x)[member], mlp(x[member]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("seeds", [(1,), (1, 2)])
@pytest.mark.parametrize(
    ("name", "module"), [("layernorm", torch.nn.LayerNorm), ("rmsnorm", torch.nn.RMSNorm)]
)
@pytest.mark.parametrize("bias", [True, False])
def test_norms_equal_those_of_torch(name, module, seeds, bias):
    norm = Subject(tiny_config(norm=name, norm_eps=0.01, bias=bias), seeds).norm("encoder")
    x = torch.randn(len(seeds), 5, 16, dtype=torch.float64)
    assert (norm.bias is not None) == (bias and name == "layernorm")
    for member in range(len(seeds)):
        options = {"bias": bias} if name == "layernorm" else {}
        public = module(16, eps=0.01, **options).double()
        public.load_state_dict({key: value[member, 0] for key, value in norm.state_dict().items()})
        torch.testing.assert_close(norm(x)[member], public(x[member]), rtol=0, atol=1e-12)


def test_dynamic_tanh_equals_its_equation():
    norm = Subject(tiny_config(norm="dynamic-tanh")).norm("encoder")
    x = torch.randn(2, 5, 16, dtype=torch.float64)
    for member in range(2):
        gain, bias, alpha = (part[member, 0] for part in (norm.weight, norm.bias, norm.alpha))
        expected = gain * (1 - 2 / ((2 * alpha * x[member]).exp() + 1)) + bias
        torch.testing.assert_close(norm(x)[member], expected, rtol=0, atol=1e-12)


class LearnedLeak(FeedForward):
    """A rectifier with a learned slope for negative numbers."""

    def build(self):
        self.slope = self.parameter(1, self.context.model.d_ff, std=0.1)

    def activate(self, x):
        return torch.where(x > 0, x, x * self.slope)


def network(activate):
    return type("Own", (FeedForward,), {"activate": lambda self, x: activate(x)})


def norm(normalise, *properties):
    return type(
        "Own",
        (Norm,),
        {"normalise": lambda self, x: normalise(x), "properties": frozenset(properties)},
    )


NETWORKS = {
    "learned-leak": LearnedLeak,
    "over-tokens": network(lambda x: x.softmax(1)),
    "by-position": network(
        lambda x: x * torch.arange(1.0, x.shape[1] + 1, dtype=x.dtype).unsqueeze(-1)
    ),
    "over-members": network(lambda x: functional.relu(x - x.mean(0, keepdim=True))),
    "narrow": network(lambda x: x[..., :1]),
}
NORMS = {
    "over-batch": norm(
        lambda x: x / x.square().mean((1, 2), keepdim=True).sqrt(), "scale-invariant"
    ),
    # It is scale-invariant and does not declare it; the next one declares to be shift-invariant and is not.
    "by-maximum": norm(lambda x: x / x.abs().amax(-1, keepdim=True)),
    "sum-norm": norm(
        lambda x: x / x.abs().sum(-1, keepdim=True), "shift-invariant", "scale-invariant"
    ),
}


@pytest.fixture(scope="module", autouse=True)
def registered():
    with separate_registry(plugin_of(feed_forward=NETWORKS, norm=NORMS)):
        yield


@pytest.mark.parametrize(
    ("family", "name", "invariant"),
    [
        ("feed_forward", "over-tokens", "tokens-alone"),
        ("feed_forward", "by-position", "tokens-alone"),
        ("feed_forward", "over-members", "members"),
        ("norm", "over-batch", "tokens-alone"),
        ("norm", "by-maximum", "norm-invariance"),
        ("norm", "sum-norm", "norm-invariance"),
    ],
)
def test_invariants_detect_planted_faults(family, name, invariant):
    assert CHECKS[invariant](Subject(tiny_config(**{family: name}))).state == "violated"


def test_a_network_with_parameters_passes_the_invariants():
    subject = Subject(tiny_config(feed_forward={"decoder": "learned-leak"}))
    for name in (
        "tokens-alone",
        "parameter-count",
        "members",
        "checkpoint",
        "gradients",
        "determinism",
    ):
        assert CHECKS[name](subject).state == "holds", name
    assert subject.feed_forward("decoder").entry.slope.shape == (2, 1, 12)


def test_a_wrong_shape_names_the_hook():
    with pytest.raises(
        HeadToHeadError, match=r"Own.activate returned a tensor .*; return a tensor \[member 2"
    ):
        _ = Subject(tiny_config(feed_forward="narrow")).reference_logits


@pytest.mark.parametrize("family", ["feed_forward", "norm"])
def test_every_entry_passes_the_invariants_of_its_family(family):
    for entry in current().entries[family].values():
        if entry.is_built_in:
            subject = Subject(tiny_config(**{family: entry.name}))
            for name in (
                "tokens-alone",
                "norm-invariance",
                "parameter-count",
                "members",
                "derivative",
            ):
                assert CHECKS[name](subject).state == "holds", (entry.name, name)
