"""Every tensor of a component has a member axis or is a constant; the core refuses every other tensor."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from headtohead.errors import HeadToHeadError
from headtohead.model.counting import count
from headtohead.model.transformer import Transformer
from headtohead.plugin import Attention, Masking, PerMemberRNG, Positional, hookimpl
from headtohead.plugins import registry as plugin_registry
from headtohead.testing import tiny_config

HEADS = 4  # of tiny_config
FILE = re.escape(str(Path(__file__).relative_to(Path.cwd()) if Path(__file__).is_relative_to(Path.cwd()) else __file__))


def build(monkeypatch, methods, seeds=range(HEADS), base=Attention):
    """Build a model with a plugin class of the given methods, by default with as many members as heads."""
    own = type("Own", (base,), {"__module__": __name__, **methods})
    family = base.__name__.lower()

    class Plugin:
        pass

    def entries(self):
        return {"own": own}

    setattr(Plugin, f"register_{family}s", hookimpl(entries, specname=f"register_{family}s"))
    monkeypatch.setattr(plugin_registry, "_current", plugin_registry.load_registry(objects=[Plugin()]))
    return Transformer(tiny_config(**{family: "own"}), seeds, 12, 9)


def in_build(make):
    def build(self):
        make(self)

    return {"build": build}


def plain(self):
    self.g = nn.Parameter(torch.randn(HEADS, 2))


def listed(self):
    self.g = nn.ParameterList([nn.Parameter(torch.randn(HEADS))])


def in_modules(self):
    self.parts = nn.ModuleList([nn.Linear(HEADS, HEADS)])


def registered_buffer(self):
    self.register_buffer("t", torch.zeros(HEADS, 2), persistent=False)


def replaced(self):
    self.g = self.parameter(HEADS)
    self.g.data = self.g.data[0]


PARAMETER = "is a plain torch.nn.Parameter without a member axis; create it in build with self.parameter"
BUFFER = (
    "is a plain buffer without a member axis; create it in build with self.constant(tensor), or with "
    "self.buffer(4, 2) if its values depend on the seed"
)


@pytest.mark.parametrize("seeds", [range(HEADS), [1], None], ids=["as many members as heads", "one member", "meta"])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (plain, f"Own.g {PARAMETER}(4, 2)"),
        (listed, f"Own.g.0 {PARAMETER}(4)"),
        (in_modules, f"Own.parts.0.weight {PARAMETER}(4, 4)"),
        (replaced, f"Own.g {PARAMETER}(4)"),
        (registered_buffer, f"Own.t {BUFFER}"),
    ],
)
@pytest.mark.parametrize("base", [Attention, Positional])
def test_a_tensor_without_a_member_axis_is_refused_at_build(monkeypatch, make, message, seeds, base):
    with pytest.raises(HeadToHeadError, match=f"^{FILE}: {re.escape(message)}$"):
        build(monkeypatch, in_build(make), seeds, base)


@pytest.mark.parametrize("where", ["itself", "a part"])
def test_a_parameter_that_a_hook_creates_later_is_refused_by_the_plan(monkeypatch, where):
    def make(self):
        self.part = nn.Module()

    def post_heads(self, heads):
        owner = self if where == "itself" else self.part
        if not hasattr(owner, "late"):
            owner.late = nn.Parameter(torch.zeros(HEADS, device=heads.device))
        return heads * owner.late[:, None, None]

    model = build(monkeypatch, {**in_build(make), "post_heads": post_heads})
    with pytest.raises(HeadToHeadError, match=r"Own\.(part\.)?late is a plain torch\.nn\.Parameter"):
        count(model.config, 12, 9, 6, 5)


MOVES = "which is not saved and does not move to the model's device"
ASSIGN = "assign self.constant(tensor), or self.parameter(*shape) to train it"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda self: setattr(self, "t", torch.randn(HEADS)), f"Own.t holds a plain tensor, {MOVES}; {ASSIGN}"),
        (
            lambda self: setattr(self, "tables", {"a": [self.parameter(2)]}),
            f"Own.tables holds a plain tensor, {MOVES}; {ASSIGN}",
        ),
        (
            lambda self: setattr(self, "layers", (nn.Linear(2, 2),)),
            f"Own.layers holds a plain module, {MOVES}; assign it to an attribute, or use torch.nn.ModuleList",
        ),
    ],
)
def test_a_tensor_that_is_not_registered_is_refused(monkeypatch, make, message):
    with pytest.raises(HeadToHeadError, match=re.escape(message)):
        build(monkeypatch, in_build(make))


def test_a_masking_has_no_tensors(monkeypatch):
    def init(self, options):
        self.options, self.t = options, torch.zeros(3)

    with pytest.raises(
        HeadToHeadError, match=r"Own\.t holds a plain tensor, .*; create it in mask, which has no other"
    ):
        build(monkeypatch, {"__init__": init}, base=Masking)


@pytest.mark.parametrize("kind", ["parameter", "buffer"])
def test_nan_at_initialisation_is_refused_at_build(monkeypatch, kind):
    def make(self):
        self.g = getattr(self, kind)(3, init=lambda out, generator: out.normal_(generator=generator).log())

    words = "NaN or infinite numbers" if kind == "parameter" else "NaN"
    with pytest.raises(HeadToHeadError, match=f"^{FILE}: Own.g has {words} at initialisation$"):
        build(monkeypatch, in_build(make))


def test_parameters_buffers_constants_and_random_streams_are_accepted(monkeypatch):
    def make(self):
        self.g = self.parameter(3, init=lambda out, generator: torch.rand(out.shape, generator=generator))
        self.more = nn.ParameterList([self.parameter(2)])
        self.fixed = self.buffer(HEADS, std=2.0)
        self.mask = self.constant(torch.full((2, 2), -torch.inf))
        self.rng = PerMemberRNG(self.context)

    model = build(monkeypatch, in_build(make))
    style = model.encoder[0].attention.style
    assert [list(tensor.shape) for tensor in (style.g, style.more[0], style.fixed)] == [[4, 3], [4, 2], [4, 4]]
    assert len(style.g.unique()) == style.g.numel()
    assert sorted(style.state_dict()) == ["fixed", "g", "more.0", "rng.state"]
    assert model.double().encoder[0].attention.style.mask.dtype == torch.float64
    assert build(monkeypatch, in_build(make), None).encoder[0].attention.style.mask.is_meta
