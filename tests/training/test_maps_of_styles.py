"""Maps of styles other than softmax attention: heads, signs and display."""

import json

import numpy as np
import pytest

from headtohead.model.transformer import Transformer
from headtohead.report.attention import Gallery, VariantMaps, payload
from headtohead.storage.attention_maps import load_maps
from headtohead.storage.run_directory import checksums
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from headtohead.training.maps import probe_maps, write_maps
from made import case_table, moved

ROLES = ("encoder", "decoder", "cross")


def maps_of(attention, positional="sinusoidal"):
    subject = Subject(tiny_config(positional, attention))
    data = subject.data
    sizes = len(data.source_vocabulary), len(data.target_vocabulary)
    model = moved(Transformer(subject.config, (1, 2), *sizes).double())
    return probe_maps(model, data, "ba da fa", "fao dao bao", 6)[1]


@pytest.mark.parametrize("target", ["fao dao bao", None], ids=["given", "own-translation"])
def test_the_maps_of_a_member_are_those_of_its_own_model(target):
    subject = Subject(tiny_config("rotary", "split-heads"))
    data, config = subject.data, subject.config
    sizes = len(data.source_vocabulary), len(data.target_vocabulary)
    model = Transformer(config, (1, 2, 3), *sizes).double().eval()
    found = probe_maps(model, data, "ba da fa", target, 6)
    for member, maps in enumerate(found):
        alone = Transformer(config, (9,), *sizes).double().eval()
        alone.load_member(0, model.member_state(member))
        (expected,) = probe_maps(alone, data, "ba da fa", target, 6)
        assert maps.record["target_tokens"] == expected.record["target_tokens"]
        for role in ROLES:
            np.testing.assert_allclose(maps.weights[role], expected.weights[role], atol=1e-6)
    assert not np.allclose(found[0].weights["encoder"], found[1].weights["encoder"])


KINDS = {
    "split-heads": ("distribution", 4),
    "differential": ("signed", 2),
    "sigmoid": ("positive", 4),
    "linear": ("distribution", 4),
    "talking-heads": ("signed", 4),
    "multi-query": ("distribution", 4),
    "uniform": ("distribution", 4),
    "random": ("distribution", 4),
}


@case_table(("name", "kind", "heads"), [(name, *rest) for name, rest in KINDS.items()], default=4)
def test_maps_record_the_number_of_heads_and_the_kind_of_weights(name, kind, heads):
    found = maps_of(name)
    assert {role: maps.shape[1] for role, maps in found.weights.items()} == dict.fromkeys(
        ROLES, heads
    )
    assert found.record["weights"] == dict.fromkeys(ROLES, kind)
    assert found.record["signed"] is (kind == "signed")
    assert any(bool((maps < 0).any()) for maps in found.weights.values()) is (kind == "signed")
    assert len(found.record["heads"]["decoder"][0]) == heads
    if kind == "distribution":
        for maps in found.weights.values():
            np.testing.assert_allclose(maps.sum(-1), 1.0, rtol=0, atol=1e-6)


def test_kinds_of_weights_are_recorded_per_role_for_all_layers():
    patterns = {"decoder": ["talking-heads", "split-heads"], "cross": ["linear", "split-heads"]}
    found = maps_of({"encoder": "sigmoid", **patterns})
    assert found.record["weights"] == {
        "encoder": "positive",
        "decoder": "signed",
        "cross": "distribution",
    }
    assert found.record["signed"] is True
    assert list(found.record["map_notes"]) == ["cross"]
    assert "map_notes" not in maps_of("sigmoid").record


def gallery(tmp_path, **styles):
    shown = []
    for title, name in styles.items():
        folder = tmp_path / title
        folder.mkdir()
        write_maps(folder / "attention", [maps_of(name)])
        (folder / "status.json").write_text(
            json.dumps({"state": "DONE", "files": checksums(folder)})
        )
        shown.append(VariantMaps(title, 1, load_maps(folder)))
    return Gallery(tuple(shown), 0)


def test_report_names_variants_with_negative_weights_and_explains_linear_maps(tmp_path):
    found = gallery(tmp_path, plain="split-heads", cancelling="differential", fast="linear")
    signed, note = found.notes
    assert signed.startswith("Negative weights of “cancelling” have")
    assert note.startswith("“fast”: φ(q)·φ(k) over its sum")
    roles = payload(found)["variants"][1]["probes"][0]["roles"]
    assert any(role["signed"] for role in roles.values())
