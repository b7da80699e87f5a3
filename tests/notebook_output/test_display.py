"""Output in Jupyter: tables of the right numbers, escaped, and limited to the size of a cell."""

import copy
import pickle
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

import headtohead as h2h
from headtohead.report.notebook import MAX_CELLS, run_html
from headtohead.storage.experiment import Pitfall
from headtohead.storage.run import RunRecord
from headtohead.testing.tiny import tiny_config
from headtohead.training.maps import SentenceMaps
from made.page import Page

STUDY = """
question: Does <order> matter?
base:
  data: {dataset: toy-grammar, size: 300}
  model: {d_model: 8, heads: 2, layers: 1, d_ff: 16, dropout: 0}
  train: {steps: 3, batch_tokens: 256}
baseline: {positional: sinusoidal}
design:
  - one_at_a_time: {positional: [none]}
seeds: 2
"""
ANSWER = "Without positions: cannot tell in exact match (every score is 0.000)."


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Run a small study once; return its plan before the run, and its result."""
    folder = tmp_path_factory.mktemp("study")
    file = folder / "order.yaml"
    file.write_text(STUDY)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("H2H_CACHE", str(folder / "cache"))
        patch.delenv("H2H_RUNS", raising=False)
        patch.delenv("H2H_REPORTS", raising=False)
        plan = h2h.plan(file)
        result = h2h.run(file, tracking=False)
        yield plan, result, h2h.results(file)


def test_a_plan_shows_the_output_of_the_command(study: Any) -> None:
    plan, _, _ = study
    html = plan._repr_html_()
    rows = Page(html).rows
    assert [row[0] for row in rows] == ["variant", "sinusoidal (baseline)", "without positions"]
    assert "in every variant: runs 0/2 done; " in html
    assert "Does &lt;order&gt; matter?" in html
    assert repr(plan) == "Plan(order: 2 variants, 4 runs, 4 to run)"


def test_a_finished_study_shows_its_answer_figures_and_scores(study: Any) -> None:
    _, result, frame = study
    html = result._repr_html_()
    assert ANSWER in html
    assert html.count("<svg") == 2
    assert "What limits this answer: no run scores" in html
    tables = "".join(re.findall("<table.*?</table>", html, re.DOTALL))
    rows = {row[0]: row[1] for row in Page(tables).rows}
    assert rows["without positions\nevery score is 0.000"] == "0.000"
    assert rows["variant"] == "exact match"
    mean = frame[frame["variant"] == "none"]["test/exact_match"].mean()
    assert rows["without positions"].splitlines()[0] == f"{mean:.3f}"


def test_results_are_a_frame_below_a_summary(study: Any) -> None:
    _, _, frame = study
    assert isinstance(frame, pd.DataFrame)
    html = frame._repr_html_()
    assert html.index(ANSWER) < html.index("test/exact_match")
    assert "4 runs; .columns lists" in html
    assert "reason" not in html
    assert len([row for row in Page(html).rows if "DONE" in row]) == 4


def test_a_slice_of_results_is_an_ordinary_frame(study: Any) -> None:
    _, _, frame = study
    for part in (frame[frame["seed"] == 1], frame[["seed", "state"]], frame.head(1)):
        assert type(part) is pd.DataFrame
    assert ANSWER in pickle.loads(pickle.dumps(frame))._repr_html_()
    pd.testing.assert_frame_equal(copy.copy(frame), pd.DataFrame(frame))


def test_a_loaded_run_shows_choices_and_scores(study: Any) -> None:
    _, result, frame = study
    run = h2h.load(result.experiment / frame["directory"].iloc[0])
    rows = dict(row[:2] for row in Page(run._repr_html_()).rows)
    assert rows["positional"] == "sinusoidal (encoder), sinusoidal (decoder), none (cross)"
    assert rows["attention"] == "split-heads"
    assert rows["d_model"] == "8"
    assert rows["loss"] == f"{frame['test/loss'].iloc[0]:.3f}"
    assert repr(run) == f"LoadedRun({str(run.path)!r})"


def test_a_run_without_scores_lists_its_pitfalls() -> None:
    pitfall = Pitfall(name="a", field="f", consequence="b < c")
    record = RunRecord.model_construct(
        title="<mine>", seed=1, config=tiny_config(), pitfalls=(pitfall,)
    )
    html = run_html(record, {})
    assert html.startswith("<p><b>&lt;mine&gt;, seed 1</b></p>")
    assert "no scores: the run was not evaluated" in html
    assert "<li>pitfall a: b &lt; c</li>" in html


def test_settings_have_the_entry_of_every_layer() -> None:
    masking = {"encoder": "padding", "decoder": ["padding-causal", "causal"], "cross": "padding"}
    record = RunRecord.model_construct(
        title="alternating", seed=1, config=tiny_config(masking=masking), pitfalls=()
    )
    rows = dict(row[:2] for row in Page(run_html(record, {})).rows)
    alternating = "padding (encoder), padding-causal/causal (decoder), padding (cross)"
    assert rows["masking"] == alternating


def maps(layers: int, heads: int, tokens: int, source: str = "a <b> c") -> SentenceMaps:
    weights = np.full((layers, heads, tokens, tokens), 1 / tokens, dtype=np.float32)
    described = [[{"entropy": 1.5, "distance": 1.0}] * heads] * layers
    roles = ("encoder", "decoder", "cross")
    record = {
        "source": source,
        "target": None,
        "target_from": "translation",
        "source_tokens": [f"<s{n}>" for n in range(tokens)],
        "target_tokens": [f"t{n}" for n in range(tokens)],
        "heads": dict.fromkeys(roles, described),
    }
    return SentenceMaps(record, dict.fromkeys(roles, weights))


@pytest.mark.slow
def test_every_head_is_drawn_with_its_tokens_escaped() -> None:
    html = maps(2, 3, 4)._repr_html_()
    assert html.count("<svg") == 3
    assert html.count("<image ") == 3 * 2 * 3
    assert html.count(">layer 1, head 2, entropy 1.50<") == 3
    assert html.count(">&lt;s0&gt;<") > 0
    assert "<b>a &lt;b&gt; c</b>" in html
    assert re.search(r"<s\d", html) is None
    assert "The decoder&#39;s input is its own translation." in html
    assert repr(maps(2, 3, 4)).startswith("SentenceMaps('a <b> c': encoder [2, 3, 4, 4]")


@pytest.mark.slow
def test_large_maps_are_truncated_with_a_note() -> None:
    html = maps(6, 8, 20)._repr_html_()
    assert 8 <= html.count("<image ") <= max(8, MAX_CELLS // 400)
    assert len(html) < 2_000_000
    assert re.search(
        r"[45] earlier layers are not drawn; .weights\[&#34;cross&#34;\] contains them", html
    )
    assert html.count("not drawn") == 3


def test_completion_lists_only_public_names() -> None:
    assert dir(h2h) == sorted(h2h.__all__)
    assert {"load", "run", "plan", "results"} <= set(dir(h2h))
    assert not [name for name in dir(h2h) if name.startswith("_")]
