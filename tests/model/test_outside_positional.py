"""An external encoding with score and values: Shaw et al. 2018."""

import pytest
import torch

from headtohead.model.counting import count
from headtohead.plugin import Options, Positional, hookimpl
from headtohead.plugins import registry as plugin_registry
from headtohead.testing import Subject, check, tiny_config


class ShawOptions(Options):
    clip: int = 2


class Shaw(Positional):
    """Relative positions on keys and values (arXiv:1803.02155, section 3.2)."""

    Options = ShawOptions
    properties = frozenset({"relative"})

    def build(self):
        geometry, rows = self.context.geometry, 2 * self.options.clip + 1
        self.keys = self.parameter(rows, geometry.key_width, std=0.5)
        self.of_values = self.parameter(rows, geometry.value_width, std=0.5)

    @classmethod
    def parameter_count(cls, options, context):
        geometry = context.geometry
        return (2 * options.clip + 1) * (geometry.key_width + geometry.value_width)

    def _rows(self, query_positions, key_positions):
        apart = key_positions[0][None, :] - query_positions[0][:, None]
        clip = self.options.clip
        return apart.clamp(-clip, clip) + clip

    def score(self, q, query_positions, key_positions, role, layer):
        table = self.keys[:, self._rows(query_positions, key_positions)]
        return torch.einsum("mbhqd,mqkd->mbhqk", q, table) * self.context.geometry.scale

    def values(self, weights, query_positions, key_positions, role, layer):
        table = self.of_values[:, self._rows(query_positions, key_positions)]
        return torch.einsum("mbhqk,mqkd->mbhqd", weights, table)


class Outsider:
    @hookimpl
    def register_positionals(self):
        return {"my-relative": Shaw}


@pytest.fixture(scope="module")
def registry():
    return plugin_registry.load_registry(objects=[Outsider()])


@pytest.fixture(autouse=True)
def outsider(registry, monkeypatch):
    monkeypatch.setattr(plugin_registry, "_current", registry)


@pytest.mark.slow
@pytest.mark.parametrize(
    "attention",
    [
        "grouped-query",
        pytest.param("split-heads", marks=pytest.mark.slow),
        pytest.param("single-head", marks=pytest.mark.slow),
    ],
)
def test_every_invariant_holds_for_an_encoding_with_score_and_values(attention):
    everywhere = dict.fromkeys(("encoder", "decoder", "cross"), "my-relative")
    verdicts = check(tiny_config(everywhere, attention))
    assert {name for name, verdict in verdicts.items() if verdict.state == "violated"} == set()
    assert verdicts["parity"].state == "does not apply"
    assert verdicts["weights-times-values"].state == "holds"
    assert verdicts["joint-shift"].state == verdicts["stacking"].state == "holds"


def test_costs_are_those_of_the_class_that_is_registered_now(monkeypatch):
    class Wider(Shaw):
        def build(self):
            super().build()
            self.unused = self.parameter(1000)

    class Plugin:
        @hookimpl
        def register_positionals(self):
            return {"my-relative": Wider}

    config = tiny_config("my-relative")
    parameters = count(config, 20, 20, 6, 5).total
    monkeypatch.setattr(plugin_registry, "_current", plugin_registry.load_registry(objects=[Plugin()]))
    assert count(config, 20, 20, 6, 5).total - parameters == 2 * 1000


def test_scores_and_values_equal_the_papers_formula():
    """Equations 3 and 4, in loops over queries, keys and heads."""
    subject = Subject(tiny_config("my-relative", "split-heads"))
    attention, positional = subject.attention("decoder"), subject.positional("decoder")
    x, _ = subject.activations("decoder")
    seen = {}
    attention(x, None, subject.attention_context("decoder", mask=subject.mask("decoder")), None, seen.__setitem__)
    member, row, head, clip, width = 1, 1, 2, 2, 4
    q, k = (seen[name][member, row, head] for name in ("queries", "keys"))
    for i in range(5):
        for j in range(i + 1):
            relative = positional.keys[member, max(-clip, min(clip, j - i)) + clip]
            expected = (q[i] @ (k[j] + relative)) / width**0.5
            torch.testing.assert_close(seen["scores"][member, row, head, i, j], expected)
    heads = []
    for column in range(4):
        rows = []
        for i in range(5):
            total = torch.zeros(width, dtype=torch.float64)
            for j in range(i + 1):
                table = positional.of_values[member, max(-clip, min(clip, j - i)) + clip]
                value = seen["values"][member, row, column, j]
                total += seen["weights"][member, row, column, i, j] * (value + table)
            rows.append(total)
        heads.append(torch.stack(rows))
    expected = torch.cat(heads, -1) @ attention.output.weight[member] + attention.output.bias[member, 0]
    output = attention(x, None, subject.attention_context("decoder", mask=subject.mask("decoder")))
    torch.testing.assert_close(output[member, row], expected)
