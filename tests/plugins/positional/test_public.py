"""Encodings against public implementations on PyPI.

If a package computes in float32, the tolerance is that of float32. If its convention differs, the test converts the
result and states the difference.
"""

import importlib
import math
import warnings

import pytest
import torch

from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from made import case_table

SINGLE = 1e-5
"""Largest difference if the package computes in float32, for numbers near 1."""

POSITIONS = torch.arange(40)[None]


@pytest.fixture(scope="module")
def lucidrains():
    """x-transformers, loaded when the first test needs it."""
    with warnings.catch_warnings():
        # x-transformers 2.31 decorates with torch.jit.script, which torch 2.13 deprecates.
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module("x_transformers.x_transformers")


def part(name, role="encoder", heads=4, d_model=16, **options):
    config = tiny_config({"name": name, **options}, heads=heads, d_model=d_model)
    return Subject(config).positional(role)


def random(*shape):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


@case_table("role", ["encoder", "decoder"], default=1)
def test_t5_relative_equals_x_transformers_without_its_scale(role, lucidrains):
    """x-transformers multiplies biases by sqrt(d_k) to undo a later scale, which is 1 here."""
    own = part("t5-relative", role)
    theirs = lucidrains.RelativePositionBias(1.0, causal=role == "decoder", heads=4).double()
    with torch.no_grad():
        theirs.relative_attention_bias.weight.copy_(own.table[1].T)
        assert torch.equal(own.bias(POSITIONS, POSITIONS, role, 0)[1, 0], theirs(40, 40))


@pytest.mark.slow
def test_shaw_on_keys_is_that_of_transformers_speech_encoder():
    """``relative_key`` of Wav2Vec2-BERT: outputs within 1e-12 in float64, clip 3, heads sharing."""
    from transformers import Wav2Vec2BertConfig
    from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertSelfAttention

    subject = Subject(tiny_config({"name": "shaw-relative", "on": "keys", "clip": 3}))
    attention, own = subject.attention("encoder"), subject.positional("encoder")
    config = Wav2Vec2BertConfig(
        hidden_size=16,
        num_attention_heads=4,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=3,
        right_max_position_embeddings=3,
        attention_dropout=0.0,
        attn_implementation="eager",
    )
    theirs = Wav2Vec2BertSelfAttention(config).double().eval()
    x = random(2, 1, 9, 16)
    for member in range(2):
        joint = attention.queries_keys_values
        with torch.no_grad():
            parts = zip(
                (theirs.linear_q, theirs.linear_k, theirs.linear_v),
                joint.weight[member].split(16, dim=-1),
                joint.bias[member, 0].split(16),
                strict=True,
            )
            for linear, weight, bias in (
                *parts,
                (theirs.linear_out, attention.output.weight[member], attention.output.bias[member]),
            ):
                linear.weight.copy_(weight.T)
                linear.bias.copy_(bias.flatten())
            theirs.distance_embedding.weight.copy_(own.on_keys[member, 0, 0])
            positions = torch.arange(9)[None]
            view = type(subject.attention_context("encoder"))(positions, positions, None)
            found = attention(x, None, view)[0][member]
            torch.testing.assert_close(found, theirs(x[member])[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 6, 8, 12])
def test_alibi_equals_x_transformers(heads, lucidrains):
    """Slopes are equal for any number of heads; biases are symmetric as in our encoder."""
    theirs = lucidrains.AlibiPositionalBias(heads)
    found = part("alibi", heads=heads, d_model=2 * heads).bias(POSITIONS, POSITIONS, "encoder", 0)
    torch.testing.assert_close(found[0, 0].float(), theirs(40, 40), rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("fraction", "width", "theta"), [(1.0, 8, 1e4), (0.5, 4, 1e4), (0.7, 6, 50.0)]
)
def test_rotary_equals_x_transformers(lucidrains, fraction, width, theta):
    freqs, scale = lucidrains.RotaryEmbedding(width, base=theta)(POSITIONS[0])
    x = random(1, 2, 2, 40, 8)
    expected = lucidrains.apply_rotary_pos_emb(x[0], freqs, scale)
    found = part("rotary", heads=2, fraction=fraction, theta=theta).rotate(
        x, POSITIONS, "encoder", 0
    )
    torch.testing.assert_close(found[0], expected, rtol=0, atol=SINGLE)


@pytest.mark.slow
@pytest.mark.parametrize("length", [32, 4096])
@pytest.mark.parametrize(
    ("kind", "theirs"), [("linear", "linear"), ("ntk", "dynamic"), ("yarn", "yarn")]
)
def test_scaled_rotary_in_evaluation_turns_by_the_frequencies_of_transformers(kind, theirs, length):
    """The type dynamic of transformers is ntk with the factor of the current length."""
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    factor = {
        "rope_type": theirs,
        "factor": 1.0 if kind == "ntk" else 4.0,
        "original_max_position_embeddings": length,
    }
    parameters = {"rope_theta": 500.0, **factor}
    config = LlamaConfig(
        hidden_size=32,
        num_attention_heads=2,
        max_position_embeddings=length,
        rope_parameters=parameters,
    )
    speeds, size = ROPE_INIT_FUNCTIONS[theirs](config, seq_len=4 * length)
    own = part(
        "rotary-scaled", heads=2, d_model=32, type=kind, factor=4.0, length=length, theta=500.0
    )
    x = random(1, 2, 2, 40, 16)
    turns = torch.polar(torch.tensor(size).double(), POSITIONS[0, :, None] * speeds.double())
    expected = torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (8, 2))) * turns).flatten(
        -2
    )
    torch.testing.assert_close(
        own.rotate(x, POSITIONS, "encoder", 0), expected, rtol=0, atol=SINGLE
    )
    plain = part("rotary", heads=2, d_model=32, theta=500.0).rotate(x, POSITIONS, "encoder", 0)
    assert torch.equal(own.train().rotate(x, POSITIONS, "encoder", 0), plain)
    assert (expected - plain).abs().max() > 0.1


def halves(table):
    """Reorder ``sin, cos, sin, cos, ...`` to all sines and then all cosines."""
    return torch.cat([table[..., 0::2], table[..., 1::2]], dim=-1)


def test_sinusoidal_equals_x_transformers_in_another_order(lucidrains):
    """x-transformers has all sines, then all cosines, and a trained factor with initial value 1 / sqrt(d)."""
    theirs = lucidrains.ScaledSinusoidalEmbedding(16)
    own = part("sinusoidal").embed(POSITIONS, "encoder")[0, 0]
    expected = theirs(torch.empty(1, 40, 16)).double() * 4
    torch.testing.assert_close(halves(own), expected, rtol=0, atol=SINGLE)
    assert (own - expected).abs().max() > 1, "without undoing the order they differ"


@pytest.mark.parametrize(("heads", "width"), [(1, 128), (4, 128), (8, 6)])
def test_sandwich_equals_the_inner_product_of_x_transformers_sinusoids(lucidrains, heads, width):
    theirs = lucidrains.ScaledSinusoidalEmbedding(width)
    rows = theirs(torch.empty(1, 40, 16)).double() * math.sqrt(width)
    ratios = torch.arange(1, heads + 1)[:, None, None] * 8 / heads
    expected = (rows @ rows.T - width / 2) / ratios
    found = part("sandwich", heads=heads, width=width).bias(POSITIONS, POSITIONS, "encoder", 0)[
        0, 0
    ]
    # Products of float32 numbers; the error of each angle is at most 40 · 6e-8.
    torch.testing.assert_close(found, expected.detach(), rtol=0, atol=1e-4)


def test_learned_equals_torch_and_x_transformers_without_its_scale(lucidrains):
    """x-transformers multiplies the table by 1 / sqrt(d)."""
    own = part("learned", max_length=40)
    table = torch.nn.Embedding.from_pretrained(own.table[1].detach())
    theirs = lucidrains.AbsolutePositionalEmbedding(16, 40).double()
    with torch.no_grad():
        theirs.emb.weight.copy_(own.table[1])
        found = own.embed(POSITIONS, "encoder")[1, 0]
        assert torch.equal(found, table(POSITIONS[0]))
        torch.testing.assert_close(found, theirs(random(1, 40, 16)) * 4, rtol=0, atol=1e-15)
