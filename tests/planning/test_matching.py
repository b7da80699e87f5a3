import re

import pytest

from headtohead.config.source_location import Source, SourceLocation
from headtohead.planning.variants import label_of_data, label_of_recipe
from made import refused


@pytest.mark.parametrize("match", ["parameters", "flops"])
def test_the_smaller_variant_is_widened_to_within_one_per_cent(plan, match):
    planned = plan(
        f"match: {match}\ndesign: [{{product: {{attention: [split-heads, independent-heads]}}}}]"
    )
    found = planned.by_slug
    (note,) = planned.matching_notes
    assert re.match(rf"match: {match} changes d_ff of 1 variant by \+\d+ %, to the ", note)
    assert note.endswith(" of the largest variant, independent-heads")
    split, independent = found["split-heads"], found["independent-heads"]
    measured = {
        "parameters": (split.record.counts.non_embedding, independent.record.counts.non_embedding),
        "flops": (split.record.counts.flops_per_token, independent.record.counts.flops_per_token),
    }[match]
    assert measured[0] == pytest.approx(measured[1], rel=0.01)
    assert split.record.d_ff_asked == 16 < split.record.d_ff == split.record.config.model.d_ff
    assert independent.config.model.d_ff == 16


def test_an_arm_is_matched_beside_the_unmatched_variants_and_the_largest_is_trained_once(plan):
    axes = "{attention: [split-heads, independent-heads], match: [none, parameters]}"
    found = plan(f"design: [{{product: {axes}}}]", seeds=2)
    slugs = [
        f"{style}-heads-match-{match}"
        for style in ("split", "independent")
        for match in ("none", "parameters")
    ]
    plain, arm, largest, equal = (found.by_slug[slug].record for slug in slugs)
    assert (plain.config.model.d_ff, len(found.runs)) == (16, 3 * 2)
    assert arm.counts.non_embedding == pytest.approx(largest.counts.non_embedding, rel=0.01)
    assert (equal.equal_to, equal.equal_reason) == (
        largest.slug,
        "the two configurations are the same",
    )


def test_position_tables_do_not_count_and_encodings_of_scores_do(plan):
    """Kaplan et al. 2020: neither token nor position embeddings count, so a table widens no feed-forward."""
    found = plan(
        "match: parameters\ndesign: [{product: {positional: [sinusoidal, learned, shaw-relative]}}]"
    ).by_slug
    plain, learned, shaw = (
        found[slug].record for slug in ("sinusoidal", "learned", "shaw-relative")
    )
    assert learned.counts.non_embedding == plain.counts.non_embedding
    assert (
        learned.counts.total - plain.counts.total == 2 * 128 * 8
    )  # two tables of 128 positions and width 8
    assert (shaw.d_ff, learned.d_ff) == (16, plain.d_ff)
    assert plain.d_ff > 16


def test_matching_is_incompatible_with_d_ff_as_an_axis(plan):
    message = "x.yaml:7: match: 'parameters' changes model.d_ff, which is an axis of this design; set match: none"
    assert (
        refused(plan, "match: parameters\ndesign: [{product: {model.d_ff: [16, 32]}}]") == message
    )
    between = "{from: {model.d_ff: 16}, to: {model.d_ff: 32}, groups: {width: [model.d_ff]}}"
    base = "question: q\nbase: {model: {d_model: 8, heads: 2}, train: {epochs: 1}}\nmatch: flops\n"
    assert "which is a change here; set match: none" in refused(
        plan, f"design: [{{between: {between}}}]", base=base
    )


def test_flops_are_matched_within_the_same_data(plan):
    axes = "{data: [copy, {dataset: copy, alphabet: 900}], attention: [split-heads, qk-norm]}"
    found = plan(f"match: flops\ndesign: [{{product: {axes}}}]", "data=copy")
    assert all(variant.record.d_ff < 20 for variant in found.variants)


@pytest.mark.parametrize("match", ["baseline-parameters", "baseline-flops"])
def test_variants_are_widened_or_narrowed_to_the_baseline(plan, match):
    styles = "[split-heads, independent-heads, multi-query]"
    found = plan(f"match: {match}\ndesign: [{{product: {{attention: {styles}}}}}]", "model.d_ff=64")
    counts_of = {slug: variant.record.counts for slug, variant in found.by_slug.items()}
    sizes = {slug: counts.non_embedding for slug, counts in counts_of.items()}
    if match == "baseline-flops":
        sizes = {slug: counts.flops_per_token for slug, counts in counts_of.items()}
    widths = {slug: variant.record.d_ff for slug, variant in found.by_slug.items()}
    assert found.design.baseline == "split-heads"
    assert widths["independent-heads"] < widths["split-heads"] == 64 < widths["multi-query"]
    baseline = sizes.pop("split-heads")
    assert list(sizes.values()) == pytest.approx([baseline, baseline], rel=0.01)
    (note,) = [note for note in found.matching_notes if "changes d_ff of 2 variants by −" in note]
    assert note.endswith(" of the baseline")


def test_each_data_set_is_matched_with_its_own_baseline(plan):
    axes = (
        "{data: [copy, {dataset: copy, alphabet: 900}], attention: [split-heads, multi-query],"
        " match: [none, baseline-flops]}"
    )
    found = plan(f"design: [{{product: {axes}}}]", "data=copy")
    for variant in found.variants:
        is_unchanged = "split-heads" in variant.slug or variant.slug.endswith("match-none")
        assert (variant.record.d_ff == 16) == is_unchanged
        assert variant.record.d_ff < 40


PAIRS_OF_AXES = (
    "{data: [copy, {dataset: copy, alphabet: 900}], attention: [split-heads, multi-query]}"
)
EXCLUDED = (
    "exclude: [{when: {data: {dataset: copy, alphabet: 900}, attention: split-heads}, reason: r}]"
)


@pytest.mark.parametrize(("block", "exclude"), [("product", EXCLUDED), ("zip", "exclude: []")])
def test_a_baseline_that_the_design_lacks_cannot_be_matched(plan, block, exclude):
    design = f"design: [{{{block}: {PAIRS_OF_AXES}}}]"
    message = refused(plan, f"match: baseline-flops\n{exclude}\n{design}", "data=copy")
    assert message.startswith("x.yaml:7: match: 'baseline-flops' needs the baseline of ")
    assert message.endswith(", which the design lacks or excludes; add it, or set match: none")


def test_a_count_that_no_width_reaches_is_a_note(plan):
    axes = "{attention: [split-heads, independent-heads]}"
    found = plan(f"match: baseline-parameters\ndesign: [{{product: {axes}}}]")
    assert found.by_slug["independent-heads"].record.d_ff == 1
    assert found.matching_notes[0] == (
        "match: baseline-parameters is not reached for independent-heads: 1,866 instead of 1,536 with d_ff 1"
    )


def test_labels_of_data_have_files_and_those_of_recipes_do_not():
    location = SourceLocation(Source("x.yaml"))
    data = {"dataset": "pairs", "file": "a.tsv", "limit": 9}
    assert label_of_data(data, location) == "pairs(file=a.tsv, limit=9)"
    recipe = {"name": "base", "data.file": "a.tsv", "data.limit": 9, "train.backend": "eager"}
    assert label_of_recipe(recipe, location) == "base(limit=9)"
