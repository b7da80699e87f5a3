"""The kit catches what it is there to catch: wrong plugins and wrong cores, one fault each."""

import pytest
import torch

from headtohead import Attention, Geometry, Masking, Positional, hookimpl, plugins
from headtohead.model.attention import MultiHeadAttention
from headtohead.testing import check, tiny_config
from headtohead_plugins.attention.split_heads import SplitHeads
from headtohead_plugins.masking.padding_causal import PaddingCausal
from headtohead_plugins.positional.alibi import Alibi
from headtohead_plugins.positional.learned import Learned
from headtohead_plugins.positional.none import NoPositional
from headtohead_plugins.positional.rotary import Rotary, angles
from headtohead_plugins.positional.sinusoidal import sinusoids


class FlippedAlibi(Alibi):
    def bias(self, query_positions, key_positions, role, layer):
        return -super().bias(query_positions, key_positions, role, layer)


class OneSidedAlibi(Alibi):
    def bias(self, query_positions, key_positions, role, layer):
        behind = (query_positions[:, :, None] >= key_positions[:, None, :]).unsqueeze(1)
        return super().bias(query_positions, key_positions, role, layer) * behind


class HalfSplitKeys(Rotary):
    """Pairs (2i, 2i+1) in queries and (i, i + d/2) in keys, told apart by the order of calls."""

    def rotate(self, x, positions, role):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls % 2:
            return super().rotate(x, positions, role)
        cos, sin = angles(positions, x.shape[-1], 10000.0, x.dtype)
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


class CountedPositions(Positional):
    """Counts from zero in every call, so that a cached step always stands at the start."""

    def embed(self, positions, role):
        return sinusoids(positions - positions.min(), self.context.d_model).unsqueeze(0)


class TellingNone(NoPositional):
    def embed(self, positions, role):
        return 1e-3 * sinusoids(positions, self.context.d_model).unsqueeze(0)


class ClampedLearned(Learned):
    @classmethod
    def parameter_count(cls, options, context):
        return options.max_length * (context.d_model - 1)


class IdleLearned(Learned):
    def embed(self, positions, role):
        return 0.0 * super().embed(positions, role) + sinusoids(positions, self.context.d_model)


class UnseededLearned(Learned):
    def build(self):
        shape = (self.context.members, 128, self.context.d_model)
        self.table = torch.nn.Parameter(torch.randn(shape))


class AverageLearned(Learned):
    """Members share their tables."""

    def embed(self, positions, role):
        table = super().embed(positions, role)
        return 0.9 * table + 0.1 * table.mean(0, keepdim=True)


class LeakingMembers(SplitHeads):
    def transform(self, q, k):
        return q + 1e-3 * q.roll(1, dims=0), k


class LeakingSentences(SplitHeads):
    def transform(self, q, k):
        return q + 1e-3 * q.roll(1, dims=1), k


class WrongAxis(SplitHeads):
    def normalise(self, scores, keep):
        return torch.softmax(scores, dim=-2)


class NegativeWeights(SplitHeads):
    def normalise(self, scores, keep):
        weights = super().normalise(scores, keep)
        return 2 * weights - weights.roll(1, dims=-1)


class Selfish(SplitHeads):
    """Every token attends to itself alone."""

    def normalise(self, scores, keep):
        weights = super().normalise(scores, keep)
        queries, keys = scores.shape[-2:]
        return torch.eye(queries, dtype=scores.dtype) + 0 * weights if queries == keys else weights


class PeeksByOne(PaddingCausal):
    def keep(self, role, query_positions, key_positions, lengths):
        return super().keep(role, query_positions + 1, key_positions, lengths)


class ReadsOnePad(PaddingCausal):
    def keep(self, role, query_positions, key_positions, lengths):
        return super().keep(role, query_positions, key_positions, lengths + 1)


class HidesLastWord(PaddingCausal):
    def keep(self, role, query_positions, key_positions, lengths):
        return super().keep(role, query_positions, key_positions, (lengths - 1).clamp(min=1))


class MaskedQueries(Masking):
    """Hides the padded queries instead of the padded keys."""

    promises = frozenset({"hides-padding", "shows-the-rest"})

    def keep(self, role, query_positions, key_positions, lengths):
        live = query_positions[None, :, None] < lengths[:, None, None]
        return live.expand(-1, -1, len(key_positions))


class TurnedCausal(PaddingCausal):
    def keep(self, role, query_positions, key_positions, lengths):
        later = key_positions[None, :] >= query_positions[:, None]
        live = key_positions[None, None, :] < lengths[:, None, None]
        return later.unsqueeze(0) & live


class StepBlind(PaddingCausal):
    """Causal by row number instead of position, which is wrong as soon as rows are steps."""

    def keep(self, role, query_positions, key_positions, lengths):
        rows = torch.arange(len(query_positions))
        return super().keep(role, rows, key_positions, lengths)


def everywhere(name):
    return {"encoder": name, "decoder": name, "cross": "none"}


POSITIONAL = {
    "flipped-alibi": (FlippedAlibi, {"falls-with-distance"}),
    "one-sided-alibi": (OneSidedAlibi, {"falls-with-distance", "source-mirror"}),
    "half-split-keys": (HalfSplitKeys, {"joint-shift"}),
    "counted-positions": (CountedPositions, {"cached-decoding", "joint-shift"}),
    "telling-none": (TellingNone, {"source-order", "source-mirror", "joint-shift"}),
    "clamped-learned": (ClampedLearned, {"parameter-count"}),
    "idle-learned": (IdleLearned, {"gradients"}),
    "unseeded-learned": (UnseededLearned, {"determinism", "stacking"}),
    "average-learned": (AverageLearned, {"stacking"}),
}
ATTENTION = {
    "leaking-members": (LeakingMembers, {"stacking"}),
    "leaking-sentences": (LeakingSentences, {"batch-of-one"}),
    "wrong-axis": (WrongAxis, {"rows-sum-to-one", "causality"}),
    "selfish": (Selfish, {"hears-target"}),
    "negative-weights": (NegativeWeights, {"rows-sum-to-one"}),
}
MASKING = {
    "peeks-by-one": (PeeksByOne, {"mask-promise", "causality", "cached-decoding"}),
    "reads-one-pad": (ReadsOnePad, {"mask-promise", "pad-content", "batch-of-one"}),
    "hides-last-word": (HidesLastWord, {"mask-promise"}),
    "masked-queries": (MaskedQueries, {"mask-promise", "pad-content", "pad-columns"}),
    "turned-causal": (TurnedCausal, {"mask-promise", "causality"}),
    "step-blind": (StepBlind, {"mask-steps", "cached-decoding"}),
}


class Planted:
    """The wrong entries, registered as anyone's would be."""

    @hookimpl
    def register_positionals(self):
        return {name: entry for name, (entry, _) in POSITIONAL.items()}

    @hookimpl
    def register_attentions(self):
        return {name: entry for name, (entry, _) in ATTENTION.items()}

    @hookimpl
    def register_maskings(self):
        return {name: entry for name, (entry, _) in MASKING.items()}


@pytest.fixture(scope="module")
def with_planted():
    return plugins.load_registry(objects=[Planted()])


@pytest.fixture
def planted(with_planted, monkeypatch):
    monkeypatch.setattr(plugins, "_current", with_planted)


def broken(config):
    return {name for name, verdict in check(config).items() if verdict.state == "broken"}


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("name", POSITIONAL)
def test_wrong_positional_is_caught_by_the_invariant_it_breaks(name):
    assert broken(tiny_config(positional=name)) >= POSITIONAL[name][1]


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("name", ATTENTION)
def test_wrong_attention_is_caught_by_the_invariant_it_breaks(name):
    assert broken(tiny_config(attention=name)) >= ATTENTION[name][1]


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("name", MASKING)
def test_wrong_masking_is_caught_by_the_invariant_it_breaks(name):
    masking = {"encoder": "padding", "decoder": name, "cross": "padding"}
    if name in ("reads-one-pad", "masked-queries", "hides-last-word"):
        masking |= {"encoder": name, "cross": name}
    assert broken(tiny_config(masking=masking)) >= MASKING[name][1]


def test_scale_doubled_on_the_explicit_path_alone_is_caught(monkeypatch):
    explicit = MultiHeadAttention._explicit

    def doubled(self, q, k, v, view, record):
        return explicit(self, 2 * q, k, v, view, record)

    monkeypatch.setattr(MultiHeadAttention, "_explicit", doubled)
    assert broken(tiny_config()) >= {"parity", "weights-act"}


def test_key_and_value_heads_given_to_the_wrong_queries_are_caught(monkeypatch):
    def tiled(self, x):
        geometry = self.context.geometry
        return x.repeat(1, 1, geometry.heads // geometry.kv_heads, 1, 1)

    monkeypatch.setattr(MultiHeadAttention, "_repeat", tiled)
    assert broken(tiny_config(attention="grouped-query")) == {"weights-act"}


def test_gradient_that_does_not_reach_a_member_is_caught(monkeypatch):
    attend = MultiHeadAttention.attend

    def detached(self, *arguments, **named):
        out = attend(self, *arguments, **named)
        return torch.cat([out[:1], out[1:].detach()]) if self.context.role == "cross" else out

    monkeypatch.setattr(MultiHeadAttention, "attend", detached)
    assert "gradients" in broken(tiny_config())


def test_deaf_decoder_is_caught(monkeypatch):
    attend = MultiHeadAttention.attend

    def deaf(self, x, memory, *rest):
        return attend(self, x, None if memory is None else torch.ones_like(memory), *rest)

    monkeypatch.setattr(MultiHeadAttention, "attend", deaf)
    assert "hears-source" in broken(tiny_config())


def test_promise_that_is_not_made_but_kept_is_pointed_out(monkeypatch):
    monkeypatch.setattr(Rotary, "promises", frozenset())
    assert broken(tiny_config("rotary")) == {"joint-shift"}


def test_right_plugins_raise_no_alarm():
    assert broken(tiny_config("rotary", "independent-heads", "causal")) == set()


def test_unspoken_masking_is_taken_at_its_word(monkeypatch):
    monkeypatch.setattr(PaddingCausal, "promises", None)
    assert broken(tiny_config()) == set()


def test_geometry_names_what_it_counts():
    geometry = Geometry(heads=4, kv_heads=2, key_width=3, value_width=5, scale=1.0)
    assert geometry.parameters(7, bias=False) == 7 * (4 * 3 + 2 * 3 + 2 * 5 + 4 * 5)
    assert issubclass(LeakingMembers, Attention)
