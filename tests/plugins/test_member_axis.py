"""Every tensor of a component has a member axis or is a constant; the core refuses every other tensor."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from headtohead.errors import HeadToHeadError
from headtohead.model.counting import count
from headtohead.model.transformer import Transformer
from headtohead.plugin import Attention, Masking, PerMemberRNG, Positional
from headtohead.plugins.registry import register
from headtohead.testing import tiny_config
from made import plugin_of

HEADS = 4  # of tiny_config
pytestmark = pytest.mark.usefixtures("own_registry")
FILE = re.escape(
    str(
        Path(__file__).relative_to(Path.cwd())
        if Path(__file__).is_relative_to(Path.cwd())
        else __file__
    )
)


def build(methods, seeds=range(HEADS), base=Attention):
    """Build a model with a plugin class of the given methods, by default with as many members as heads."""
    own = type("Own", (base,), {"__module__": __name__, **methods})
    family = base.__name__.lower()
    register(plugin_of(**{family: {"own": own}}))
    return Transformer(tiny_config(**{family: "own"}), seeds, 12, 9)


def replaced(self):
    parameter = self.parameter(HEADS)
    parameter.data = parameter.data[0]
    return parameter


def registered_buffer(self):
    self.register_buffer("g", torch.zeros(HEADS, 2), persistent=False)
    return self.g


WITHOUT_AXIS = [
    lambda self: nn.Parameter(torch.randn(HEADS, 2)),
    lambda self: nn.ParameterList([nn.Parameter(torch.randn(HEADS))]),
    lambda self: nn.ModuleList([nn.Linear(HEADS, HEADS)]),
    replaced,
    registered_buffer,
]
UNREGISTERED = [lambda self: {"a": [self.parameter(2)]}, lambda self: (nn.Linear(2, 2),)]
REMEDY = "create it in build with self.parameter, self.buffer or self.constant"
PLAIN = f"g(.0|.0.weight)? is a plain tensor without a member axis; {REMEDY}"
HOLDS = f"table holds a tensor or module that is not registered; {REMEDY}"


@pytest.mark.parametrize(
    ("name", "value", "message", "base", "seeds"),
    [
        *(("g", value, PLAIN, Attention, range(HEADS)) for value in WITHOUT_AXIS),
        *(("table", value, HOLDS, Attention, range(HEADS)) for value in UNREGISTERED),
        *(
            ("g", WITHOUT_AXIS[0], PLAIN, *other)
            for other in ((Attention, [1]), (Attention, None), (Positional, [1]))
        ),
    ],
)
def test_a_tensor_without_a_member_axis_is_refused_at_build(name, value, message, base, seeds):
    with pytest.raises(HeadToHeadError, match=rf"^{FILE}: Own\.{message}$"):
        build({"build": lambda self: setattr(self, name, value(self))}, seeds, base)


@pytest.mark.parametrize("where", ["itself", "a part"])
def test_a_parameter_that_a_hook_creates_later_is_refused_by_the_plan(where):
    def make(self):
        self.part = nn.Module()

    def post_heads(self, heads, x, values):
        owner = self if where == "itself" else self.part
        if not hasattr(owner, "late"):
            owner.late = nn.Parameter(torch.zeros(HEADS, device=heads.device))
        return heads * owner.late[:, None, None]

    model = build({"build": make, "post_heads": post_heads})
    with pytest.raises(HeadToHeadError, match=r"Own\.(part\.)?late is a plain tensor"):
        count(model.config, 12, 9, 6, 5)


def test_a_masking_has_no_tensors():
    def init(self, options):
        self.options, self.t = options, torch.zeros(3)

    with pytest.raises(
        HeadToHeadError,
        match=r"Own\.t holds a tensor .*; create it in mask, which has no other state",
    ):
        build({"__init__": init}, base=Masking)


@pytest.mark.parametrize(
    ("kind", "values"), [("parameter", "NaN or infinite numbers"), ("buffer", "NaN")]
)
def test_nan_at_initialisation_is_refused_at_build(kind, values):
    def make(self):
        self.g = getattr(self, kind)(
            3, init=lambda out, generator: out.normal_(generator=generator).log()
        )

    with pytest.raises(HeadToHeadError, match=rf"^{FILE}: Own\.g has {values} at initialisation$"):
        build({"build": make})


def test_parameters_buffers_constants_and_random_streams_are_accepted():
    def make(self):
        self.g = self.parameter(
            3, init=lambda out, generator: torch.rand(out.shape, generator=generator)
        )
        self.more = nn.ParameterList([self.parameter(2)])
        self.fixed = self.buffer(HEADS, std=2.0)
        self.mask = self.constant(torch.full((2, 2), -torch.inf))
        self.rng = PerMemberRNG(self.context)

    model = build({"build": make})
    style = model.encoder[0].attention.style
    assert [list(tensor.shape) for tensor in (style.g, style.more[0], style.fixed)] == [
        [4, 3],
        [4, 2],
        [4, 4],
    ]
    assert len(style.g.unique()) == style.g.numel()
    assert sorted(style.state_dict()) == ["fixed", "g", "more.0", "rng.state"]
    assert model.double().encoder[0].attention.style.mask.dtype == torch.float64
    assert build({"build": make}, None).encoder[0].attention.style.mask.is_meta


ROWS = 3
TIME = 5


def hidden_of(methods):
    """Return the decoder's output in training, for two members with an encoding of the given methods."""
    model = build(methods, range(2), Positional).train()
    ids = torch.arange(2 * ROWS * TIME).view(2, ROWS, TIME) % 9
    lengths = torch.full((2, ROWS), TIME)
    return model.hidden(model.batch_of(ids, lengths, ids, lengths))


def draw(self, batch, time):
    return torch.arange(time).expand(self.context.members, batch, time)


def tables_of(batch):
    """Return the hooks ``embed`` and ``bias`` with a number of batch rows, each by its name."""

    def embed(self, positions, role):
        return torch.ones(1, batch, positions.shape[1], self.context.d_model)

    def bias(self, query_positions, key_positions, role, layer):
        distances = query_positions[:1, :, None] - key_positions[:1, None, :]
        return distances.float().expand(1, batch, 1, -1, -1)

    return {"embed": embed, "bias": bias}


@pytest.mark.parametrize("hook", ["embed", "bias"])
@pytest.mark.parametrize(("is_sampled", "rows"), [(False, ROWS), (True, 2 * ROWS)])
def test_a_table_of_positions_has_one_batch_row_or_that_of_every_sentence(hook, is_sampled, rows):
    sampled = {"draw": draw} if is_sampled else {}
    one, every = (hidden_of(sampled | {hook: tables_of(batch)[hook]}) for batch in (1, rows))
    torch.testing.assert_close(one, every)
    message = rf"Own\.{hook} returned a tensor .*; return a tensor \[member 1.*, batch 1 or {rows},"
    with pytest.raises(HeadToHeadError, match=message):
        hidden_of(sampled | {hook: tables_of(rows - 1)[hook]})
