import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest

from headtohead.analysis.study import Analysis
from headtohead.errors import HeadToHeadError
from headtohead.report.attention import gallery, payload
from headtohead.storage.attention_maps import entropy, load_maps, mean_distance
from headtohead.storage.frames import load_frames
from made.fake_study import record_checksums


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


@pytest.mark.parametrize("signed", [False, True])
def test_both_numbers_agree_with_their_definition_for_every_head_without_fully_masked_queries(
    signed,
):
    generator = np.random.default_rng(1)
    weights = (
        generator.normal(size=(2, 3, 5, 7))
        if signed
        else generator.dirichlet(np.ones(7), size=(2, 3, 5))
    )
    weights[1, 2, 4] = 0.0
    expected = np.array([[naive(weights[layer, head]) for head in range(3)] for layer in range(2)])
    assert np.stack([entropy(weights), mean_distance(weights)], axis=-1) == pytest.approx(expected)
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


def test_the_error_names_a_corrupted_map_file(quickstart, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(next(quickstart.glob("rotary-split-heads-causal-s1-*")), run)
    maps = run / "attention" / "maps.safetensors"
    maps.write_bytes(maps.read_bytes()[:100])
    with pytest.raises(HeadToHeadError, match=r"maps\.safetensors' is damaged: its sha256"):
        load_maps(run)
    record_checksums(run)
    with pytest.raises(HeadToHeadError, match=r"maps\.safetensors': not a readable safetensors"):
        _ = load_maps(run)[0].weights


def test_maps_of_variants_with_another_order_of_sentences_are_paired_by_the_sentence(quickstart):
    expected = gallery(Analysis(load_frames(quickstart)))
    first, second, *others = expected.variants
    reordered = replace(second, maps=second.maps[::-1])
    found = replace(expected, variants=(first, reordered, *others))
    assert payload(found) == payload(expected)
    assert found.limit == expected.limit
    shorter = replace(second, maps=second.maps[1:])
    (_, missing, *_) = payload(replace(expected, variants=(first, shorter)))["variants"]
    assert [bool(probe["roles"]) for probe in missing["probes"]] == [False, True]
