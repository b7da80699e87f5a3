"""Claims of an experiment file: the variants that they select, and all their errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headtohead.config.loading import load_file
from headtohead.errors import HeadToHeadError
from headtohead.planning.design import expand

ROOT = Path(__file__).parents[2]
PUBLISHED = sorted((ROOT / "experiments" / "published").glob("*.yaml"))

DESIGN = """
design:
  - product:
      positional: [sinusoidal, rotary, {name: learned, std: 0.1}, {name: learned, std: 1.0}]
      model.heads: [2, 4]
"""
PUBLISHED_VALUES = """
published:
  source: A. Author 2018
  claims:
    - statement: Rotary is better.
      variant: {positional: rotary}
      published: {variant: 2, against: 1, where: table 3}
      expect: higher
"""


def claimed(text: str = "") -> str:
    return DESIGN + PUBLISHED_VALUES + text


def test_a_claim_selects_variants_by_axis_values_with_the_baseline_for_other_axes(design):
    text = claimed("""\
      against: {positional: {name: learned, std: 1.0}, model.heads: 4}
""")
    found = design(text).published
    assert found.source == "A. Author 2018"
    (claim,) = found.claims
    assert claim.variant == "rotary-heads-2"
    assert claim.against == "learned-std-1-heads-4"
    assert claim.metric == "test/exact_match"


def test_the_default_of_against_is_the_baseline(design):
    found = design(claimed())
    assert found.published.claims[0].against == found.baseline


def test_an_empty_mapping_means_the_baseline(design):
    text = claimed().replace("{positional: rotary}", "{}") + (
        "      against_metric: test/bleu\n      metric: test/chrf\n"
    )
    found = design(text)
    claim = found.published.claims[0]
    assert claim.variant == claim.against == found.baseline


def test_a_file_without_claims_has_none(design):
    assert design(DESIGN).published is None


def test_claims_do_not_change_the_run_hash(plan):
    with_claims, without = plan(claimed()), plan(DESIGN)
    assert [run.run_hash for run in with_claims.runs] == [run.run_hash for run in without.runs]
    assert with_claims.record().to_json()["published"]["claims"][0]["variant"] == "rotary-heads-2"
    assert without.record().to_json()["published"] is None


def changed(old: str, new: str) -> str:
    text = claimed()
    assert old in text
    return text.replace(old, new)


WRONG = [
    (
        changed("{positional: rotary}", "{positional: rotari}"),
        "published.claims[0].variant.positional: unknown positional 'rotari'; did you mean 'rotary'?",
    ),
    (
        changed("{positional: rotary}", "{positional: alibi}"),
        "published.claims[0].variant: no variant of the design has positional: 'alibi'; expected one of: sinusoidal",
    ),
    (
        changed("{positional: rotary}", "{positional: learned}"),
        "published.claims[0].variant: 2 variants have positional: 'learned'; expected one of: "
        "learned(std=0.1) · heads 2; learned(std=1) · heads 2",
    ),
    (
        changed("{positional: rotary}", "{position: rotary}"),
        "published.claims[0].variant.position: unknown axis 'position'; did you mean 'positional'?",
    ),
    (
        changed("{positional: rotary}", "{positional: sinusoidal}"),
        "published.claims[0]: variant and against are the same variant; name two different variants",
    ),
    (
        changed("expect: higher", "expect: more"),
        "published.claims[0].expect: expected 'higher', 'lower', 'equal' or 'at-most', got 'more'",
    ),
    (
        changed("expect: higher", "expect: equal"),
        "published.claims[0]: expect: equal requires margin; choose it before the first run",
    ),
    (
        changed("expect: higher", "expect: at-most"),
        "published.claims[0]: expect: at-most requires limit; choose it before the first run",
    ),
    (claimed("      margin: 0.1\n"), "published.claims[0].margin: margin requires expect: equal, got expect: higher"),
    (claimed("      limit: 0.1\n"), "published.claims[0].limit: limit requires expect: at-most, got expect: higher"),
    (
        changed("expect: higher", "expect: equal\n      margin: 1\n      by: 2"),
        "published.claims[0].by: by requires expect: higher or lower, got expect: equal",
    ),
    (
        changed("expect: higher", "expect: equal\n      margin: 1"),
        "published.claims[0]: margin requires justification: state why a difference of this size matters",
    ),
    (
        claimed("      by: 2\n"),
        "published.claims[0]: by requires justification: state why a difference of this size matters",
    ),
    (
        changed("expect: higher", "expect: equal\n      margin: 0"),
        "published.claims[0].margin: must be greater than 0, got 0",
    ),
    (
        claimed("      metric: test/blue\n"),
        "published.claims[0].metric: unknown metric 'test/blue'; did you mean 'test/bleu'?",
    ),
    (
        claimed("      lengths: [3, 8]\n"),
        "published.claims[0].lengths: lengths must be whole buckets of evaluate.buckets: start at 1, 6, "
        "9, 12, 15, 21, 31 and end at 5, 8, 11, 14, 20, 30; got 3 to 8",
    ),
    (
        claimed("      against_lengths: [9, 12]\n"),
        "published.claims[0].against_lengths: lengths must be whole buckets of evaluate.buckets: start at "
        "1, 6, 9, 12, 15, 21, 31 and end at 5, 8, 11, 14, 20, 30; got 9 to 12",
    ),
    (
        claimed("      metric: test/chrf\n      lengths: [1, 8]\n"),
        "published.claims[0].lengths: test/chrf has no score by source length; use "
        "test/exact_match, test/bleu or test/loss",
    ),
    (
        claimed("      metric: valid/loss\n      lengths: [1, 8]\n"),
        "published.claims[0].lengths: valid/loss has no score by source length; use ",
    ),
    (
        claimed("      against_metric: heads/cross/only-one/loss\n      lengths: [1, 8]\n"),
        "published.claims[0].lengths: heads/cross/only-one/loss has no score by source length; ",
    ),
    (
        claimed("      against_metric: test/perplexity\n      against_lengths: [1, 8]\n"),
        "published.claims[0].against_lengths: test/perplexity has no score by source length; ",
    ),
    (
        changed("published: {variant: 2, against: 1, where: table 3}", "published: {variant: 2}"),
        "published.claims[0].published: field 'where' is missing",
    ),
    (
        changed("  claims:", "  setup: {model.d_modell: 512}\n  claims:"),
        "published.setup.model.d_modell: unknown name 'model.d_modell'; did you mean 'model.d_model'",
    ),
    (
        changed("  claims:", "  setup: {pears: 512}\n  claims:"),
        "published.setup.pears: unknown name 'pears'; did you mean 'pairs'?",
    ),
    ("published: {source: A. Author 2018, claims: []}\n", "published.claims: expected 1 values, got []"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_a_wrong_claim_is_refused_with_file_line_and_field(text, message, design):
    with pytest.raises(HeadToHeadError) as refused:
        design(text)
    assert re.match(r"x\.yaml:\d+: ", str(refused.value))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("metric", ["test/exact_match", "test/bleu", "test/loss"])
def test_claims_by_length_require_metrics_with_counts(metric, design):
    (claim,) = design(claimed(f"      metric: {metric}\n      lengths: [1, 8]\n")).published.claims
    assert (claim.metric, claim.lengths) == (metric, (1, 8))


def test_between_cannot_have_claims(load, registry):
    text = (
        """
question: q
base: {data: {dataset: toy-grammar}, train: {epochs: 1}}
design:
  - between: {from: recipe/slides-en-fr, to: recipe/tatoeba-en-es}
"""
        + PUBLISHED_VALUES
    )
    with pytest.raises(HeadToHeadError, match="claims name variants by axis values"):
        expand(load(text), registry)


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_every_published_experiment_has_variants_a_source_and_values(path, registry):
    found = expand(load_file(path), registry)
    assert found.published is not None
    assert re.search(r"(19|20)\d\d", found.published.source)
    slugs = {variant.slug for variant in found.variants}
    for claim in found.published.claims:
        assert claim.variant in slugs
        assert claim.against in slugs | {None}
        assert claim.published.where


def test_published_experiments_on_the_same_sentences_share_their_base(registry):
    """Runs of equal configurations are trained once, so the files on Tatoeba differ in nothing else."""
    bases = {}
    for path in PUBLISHED:
        file = load_file(path).file
        if file.base["data"]["dataset"] == "tatoeba":
            bases[path.stem] = file.base
    assert len(bases) >= 6
    assert len({str(base) for base in bases.values()}) == 1
