import json
import math
import shutil

import numpy as np
import pytest

from headtohead.errors import HeadToHeadError
from headtohead.storage.attention_maps import entropy, load_maps, mean_distance


def naive(weights):
    """Entropy and distance of one map, term by term."""
    entropies, distances = [], []
    for i, row in enumerate(weights):
        total = sum(abs(w) for w in row)
        if total == 0:
            continue
        shares = [abs(w) / total for w in row]
        entropies.append(-sum(p * math.log(p) for p in shares if p > 0))
        distances.append(sum(p * abs(i - j) for j, p in enumerate(shares)))
    return sum(entropies) / len(entropies), sum(distances) / len(distances)


def test_both_numbers_agree_with_their_definition_for_every_head():
    weights = np.random.default_rng(1).dirichlet(np.ones(7), size=(2, 3, 5))
    entropies, distances = entropy(weights), mean_distance(weights)
    assert entropies.shape == distances.shape == (2, 3)
    for layer in range(2):
        for head in range(3):
            expected = naive(weights[layer, head])
            assert entropies[layer, head] == pytest.approx(expected[0])
            assert distances[layer, head] == pytest.approx(expected[1])


def test_signed_maps_are_described_by_their_magnitudes():
    weights = np.random.default_rng(2).normal(size=(4, 6))
    assert entropy(weights) == pytest.approx(naive(weights)[0])
    assert entropy(-weights) == entropy(weights)


def test_fully_masked_queries_are_omitted():
    weights = np.array([[0.0, 0.0], [0.5, 0.5]])
    assert entropy(weights) == pytest.approx(math.log(2))
    assert np.isnan(entropy(np.zeros((3, 3))))


def test_maps_are_read_with_their_tokens(quickstart):
    run = next(quickstart.glob("rotary-split-heads-causal-s1-*"))
    maps = load_maps(run)
    assert len(maps) == 2
    probes = json.loads((run / "attention" / "probes.json").read_text())
    for probe, recorded in zip(maps, probes, strict=True):
        for role in ("encoder", "decoder", "cross"):
            queries, keys = probe.tokens(role)
            weights = probe.weights[role]
            assert weights.shape == (2, 4, len(queries), len(keys))
            heads = np.array([[h["entropy"] for h in layer] for layer in recorded["heads"][role]])
            assert entropy(weights) == pytest.approx(heads, abs=1e-5)


def test_the_error_names_a_corrupted_map_file(quickstart, tmp_path, record_checksums):
    run = tmp_path / "run"
    shutil.copytree(next(quickstart.glob("rotary-split-heads-causal-s1-*")), run)
    maps = run / "attention" / "maps.safetensors"
    maps.write_bytes(maps.read_bytes()[:100])
    with pytest.raises(HeadToHeadError, match=r"maps\.safetensors' is damaged: its sha256"):
        load_maps(run)
    record_checksums(run)
    with pytest.raises(HeadToHeadError, match=r"maps\.safetensors': not a readable safetensors"):
        _ = load_maps(run)[0].weights
