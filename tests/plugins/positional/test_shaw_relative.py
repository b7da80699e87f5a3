"""Shaw's equations 3 and 4, in loops over queries, keys and coordinates."""

import pytest
import torch

from headtohead.model.transformer import Transformer
from headtohead.testing.invariants.trained_stacks import trained_weights
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from made import case_table

WIDTH, CLIP = 4, 2


def shaw(**options):
    options_by_role = {"name": "shaw-relative", "clip": CLIP, **options}
    return Subject(tiny_config(dict.fromkeys(("encoder", "decoder", "cross"), options_by_role)))


def of(table, member, layer, head, c):
    """The vector of a distance, shared by the heads or per head."""
    heads = table[member, layer]
    return heads[head if len(heads) > 1 else 0, c + CLIP].tolist()


def clip(apart):
    return max(-CLIP, min(CLIP, apart))


@case_table("heads", ["shared", "own"], default=6)
@case_table("on", ["both", "keys", "values"], default=6)
@case_table("role", ["encoder", "decoder", "cross"], default=6)
@torch.no_grad()
def test_scores_and_outputs_equal_the_papers_equations(role, on, heads):
    subject = shaw(on=on, heads=heads)
    part = subject.positional(role)
    x, memory = subject.activations(role)
    seen = {}
    subject.attention(role)(x, memory, subject.attention_context(role, mask=subject.mask(role)), None, seen.__setitem__)
    member, row = 1, 2
    for head in range(4):
        q, k, v = (seen[name][member, row, head].tolist() for name in ("queries", "keys", "values"))
        weights = seen["weights"][member, row, head].tolist()
        for i in range(len(q)):
            out = [0.0] * WIDTH
            for j in range(len(k)):
                key, value = list(k[j]), list(v[j])
                if on != "values":
                    added = of(part.on_keys, member, 0, head, clip(j - i))
                    key = [a + b for a, b in zip(key, added, strict=True)]
                if on != "keys":
                    added = of(part.on_values, member, 0, head, clip(j - i))
                    value = [a + b for a, b in zip(value, added, strict=True)]
                product = sum(a * b for a, b in zip(q[i], key, strict=True))
                found = seen["scores"][member, row, head, i, j].item()
                assert found == pytest.approx(product / WIDTH**0.5, abs=1e-12)
                out = [o + weights[i][j] * c for o, c in zip(out, value, strict=True)]
            assert seen["heads"][member, row, head, i].tolist() == pytest.approx(out, abs=1e-12)


def test_each_layer_has_separate_tables():
    part = shaw().positional("decoder")
    assert part.on_keys.shape == part.on_values.shape == (2, 2, 1, 5, WIDTH)
    own = shaw(heads="own").positional("decoder")
    assert own.on_keys.shape == (2, 2, 4, 5, WIDTH)
    assert not torch.equal(part.on_keys[:, 0], part.on_keys[:, 1])
    positions = torch.arange(4)[None]
    q = torch.ones(2, 1, 4, 4, WIDTH, dtype=torch.float64)
    first, second = (part.score(q, positions, positions, "decoder", layer) for layer in (0, 1))
    assert not torch.isclose(first, second).any()


def test_training_changes_only_vectors_of_distances_that_occur():
    subject = Subject(tiny_config({"name": "shaw-relative", "clip": CLIP}))
    words = map(len, (subject.data.source_vocabulary, subject.data.target_vocabulary))
    start = Transformer(subject.config, subject.seeds, *words).double().state_dict()
    for member, weights in enumerate(trained_weights(subject, subject.config, subject.seeds)):
        for role in ("encoder", "decoder"):
            for table in ("on_keys", "on_values"):
                name = f"positionals.{role}.{table}"
                moved = (weights[name] - start[name][member]).abs().amin(-1) > 0
                # Rows cover distances from two behind to two ahead, and the decoder never attends ahead.
                expected = torch.tensor([True] * 3 + [role == "encoder"] * 2)
                assert torch.equal(moved, expected.expand_as(moved)), name
