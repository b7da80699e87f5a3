"""Further encodings in an experiment: planned, trained and decoded, with maps."""

import json
from functools import partial

import pytest
from safetensors.torch import load_file

SMALL = """
question: Do the encodings train?
base:
  data: {dataset: toy-grammar, limit: 300}
  model: {d_model: 16, heads: 2, layers: 2, d_ff: 16, dropout: 0.0}
  train: {steps: 6, batch_tokens: 256, lr: 1.0e-2}
  evaluate: {unpadded: false, test_limit: 6, max_length: 8}
baseline: {positional: t5-relative, attention: split-heads, masking: padding-causal}
design:
  - one_at_a_time:
      positional:
        - shaw-relative
        - kerple-log
        - {encoder: kerple-log, decoder: fire}
        - sandwich
        - shape
        - randomised
        - {name: randomised, of: rotary}
        - {name: randomised, of: alibi}
        - fire
seeds: 2
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("experiment")
    (folder / "encodings.yaml").write_text(SMALL, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def h2h(folder, h2h_here):
    return partial(h2h_here, folder, H2H_CACHE=str(folder / "cache"), COLUMNS="400")


def test_plan_lists_every_entry_and_excludes_fire_in_the_encoder_with_the_reason(h2h):
    done = h2h("plan", "encodings.yaml")
    assert done.returncode == 0, done.stderr
    for name in ("t5-relative", "shaw-relative", "kerple-log", "sandwich", "shape", "randomised"):
        assert name in done.stdout
    said = " ".join(done.stdout.split())
    assert "fire divides the distance by the query's position" in said
    assert "use another encoding for the encoder" in said


@pytest.fixture(scope="module")
def trained(folder, h2h, no_figures):
    with no_figures():
        done = h2h("run", "encodings.yaml", "--no-tracking")
    assert done.returncode == 0, done.stderr
    return folder / "runs" / "encodings"


@pytest.mark.slow
def test_every_entry_trains_decodes_and_writes_maps(trained):
    runs = [path.parent for path in trained.glob("*/status.json")]
    assert len(runs) == 18
    for run in runs:
        status = json.loads((run / "status.json").read_text("utf-8"))
        assert (status["state"], status["step"]) == ("DONE", 6), run.name
        maps = load_file(run / "attention" / "maps.safetensors")
        assert {name.rpartition("/")[2] for name in maps} == {"encoder", "decoder", "cross"}
        assert all(weights.isfinite().all() for weights in maps.values()), run.name
        translations = (run / "translations.tsv").read_text("utf-8").splitlines()
        assert len(translations) == 1 + 6
