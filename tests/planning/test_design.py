import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headtohead.config.labels import shortened_slug
from headtohead.config.loading import load_text
from headtohead.config.yaml_text import dump
from headtohead.planning.design import expand
from made import refused
from planning.conftest import SMALL

GRID = """
baseline: {positional: sinusoidal, attention: split-heads}
design:
  - product: {positional: [sinusoidal, rotary, none], attention: [split-heads, single-head]}
"""


def test_a_primary_metric_of_translations_requires_decoding(design):
    """Without translations of the baseline no contrast has a value, so training would answer nothing."""
    text = "design: [{one_at_a_time: {positional: [rotary], evaluate.decode: [none]}}]\n"
    without = "evaluate.decode=none"
    design(text + "metrics: {primary: test/token_accuracy}", without)
    message = "metrics.primary: 'test/bleu' requires translations, but variant 'sinusoidal-decode-none' has"
    assert message in refused(design, text + "metrics: {primary: test/bleu}", without)
    assert (
        "no test/bleu for sinusoidal-decode-none, which has evaluate.decode: none"
        in design(text + "metrics: {primary: test/bleu}").notes
    )


def slugs(found):
    return [variant.slug for variant in found.variants]


def factors(found):
    return of_family(found, "factor")


def of_family(found, family):
    return [contrast for contrast in found.contrasts() if contrast.family == family]


def weights(contrast):
    return [{side.variant: side.weight for side in setting} for setting in contrast.settings]


def difference(variant, against):
    return {variant: 1, against: -1}


def effects(contrast):
    return [(effect.axis, effect.value, effect.against) for effect in contrast.effects]


def test_a_zip_inside_a_product_is_one_axis_and_d_ff_can_follow_the_width(design):
    found = design("""
        design:
          - product:
              train.lr: [1.0e-3, 1.0e-2]
              zip: {model.d_model: [4, 16], model.d_ff: [20, 4x]}
    """)
    sizes = [
        (v.config.train.lr, v.config.model.d_model, v.config.model.d_ff) for v in found.variants[1:]
    ]
    assert sizes == [(1e-3, 4, 20), (1e-3, 16, 64), (1e-2, 4, 20), (1e-2, 16, 64)]
    assert found.variants[2].title == "width 16, feed-forward width 4x"
    rates, *_ = factors(found)
    assert (rates.effects[0].axis, len(rates.settings)) == ("train.lr", 2)


def test_a_zip_inside_a_product_has_averaged_effects_and_interactions(design):
    found = design("""
        baseline: {model.d_ff: 32}
        design:
          - product:
              positional: [sinusoidal, rotary]
              zip: {model.d_model: [8, 16], model.d_ff: [4x, 64]}
    """)
    averaged = {contrast.name: weights(contrast) for contrast in factors(found)}
    wide = ("rotary-d_model-16-d_ff-64", "sinusoidal-d_model-16-d_ff-64")
    narrow = ("rotary-d_model-8-d_ff-4x", "sinusoidal-d_model-8-d_ff-4x")
    assert averaged == {
        "rotary instead of sinusoidal": [difference(*narrow), difference(*wide)],
        "width 16 instead of 8 and feed-forward width 64 instead of 4x": [
            difference(wide[1], narrow[1]),
            difference(wide[0], narrow[0]),
        ],
    }
    (interaction,) = of_family(found, "interaction")
    assert weights(interaction) == [{wide[0]: 1, wide[1]: -1, narrow[0]: -1, narrow[1]: 1}]
    assert interaction.name == (
        "rotary instead of sinusoidal together with width 16 instead of 8 and feed-forward width 64 instead of 4x"
    )


def test_a_zip_with_data_has_no_averaged_effect_because_scores_on_different_data_are_not_compared(
    design,
):
    found = design("""
        design:
          - product:
              positional: [sinusoidal, rotary]
              zip: {data: [toy-grammar, copy], train.lr: [0.01, 0.02]}
    """)
    assert [contrast.effects[0].axis for contrast in factors(found)] == ["positional"]


def test_two_notations_of_a_variant_are_one_variant(design):
    found = design("""
        design:
          - one_at_a_time:
              masking: [causal]
          - zip: {masking.encoder: [none], masking.decoder: [causal], masking.cross: [none]}
    """)
    assert len(found.variants) == 2


def test_values_override_base_and_baseline(design):
    found = design("""
        baseline: {model: {heads: 1}, positional: rotary}
        design: [{one_at_a_time: {positional.encoder.theta: [5]}}]
    """)
    changed = found.variants[1].config
    assert changed.model.heads == 1
    assert changed.positional.encoder.options.theta == 5.0
    assert changed.positional.decoder.options.theta == 10000.0


@pytest.mark.parametrize(
    ("axis", "values", "parts"),
    [
        ("positional", ["{name: rotary, theta: 100}"], ["rotary-theta-100"]),
        ("masking.decoder", ["causal"], ["masking.decoder-causal"]),
        ("train.lr", ["1e-4", "2.5e-3"], ["lr-0.0001", "lr-0.0025"]),
        ("train.clip_norm", ["null", "2"], ["clip_norm-null", "clip_norm-2"]),
        (
            "train.early_stopping",
            ["{patience: 2}"],
            ["early_stopping-metric-valid-loss-patience-2"],
        ),
        ("positional.theta", ["5"], ["positional.theta-5"]),
    ],
)
def test_slugs_name_fields_and_not_families(design, axis, values, parts):
    base = "baseline: {positional: rotary}\n" if "theta" in axis else ""
    found = design(f"{base}design: [{{one_at_a_time: {{{axis}: [{', '.join(values)}]}}}}]")
    assert slugs(found)[1:] == parts


def test_a_long_slug_is_truncated_and_unique():
    first, second = (shortened_slug("a" * 130 + end) for end in "bc")
    assert len(first) == len(second) == 120
    assert first != second


def test_a_title_has_only_what_differs_from_the_baseline(design):
    found = design("""
        baseline: {attention: combined, model: {architecture: decoder-only}}
        design:
          - product:
              attention.first: [split-heads, value-residual]
              attention.second: [split-heads, gated]
          - one_at_a_time: {attention.first: [gated]}
    """)
    titles = [variant.title for variant in found.variants]
    assert titles[0] == "split heads"
    assert titles[2:4] == ["with value residual", "with value residual, with a gated output"]
    ambiguous = {"split heads, with a gated output", "with a gated output, split heads"}
    assert {titles[1], titles[4]} == ambiguous


def test_an_excluded_variant_has_the_reason_of_the_exclusion(design):
    found = design(
        GRID + "exclude: [{when: {positional: none, attention: single-head}, reason: why}]"
    )
    assert "none-single-head" not in slugs(found)
    assert found.notes == ()
    assert [record.to_json() for record in found.excluded] == [
        {
            "axes": {"positional": "none", "attention": "single-head"},
            "slug": "none-single-head",
            "title": "without positions, a single head",
            "phrases": {"positional": "without positions", "attention": "a single head"},
            "reason": "why",
            "source": "exclude",
        }
    ]


@pytest.mark.parametrize(
    ("value", "left"),
    [("rotary", ["sinusoidal"]), ("{name: rotary, theta: 5}", ["sinusoidal", "rotary"])],
)
def test_an_exclusion_by_name_applies_with_any_options(design, value, left):
    found = design(f"""
        design: [{{one_at_a_time: {{positional: [rotary, {{name: rotary, theta: 5}}]}}}}]
        exclude: [{{when: {{positional: {value}}}, reason: why}}]
    """)
    assert slugs(found) == left


def test_a_value_without_effect_is_noted_and_no_variant(design):
    text = "design: [{one_at_a_time: {train.decay: [matrices]}}]"
    found = design(text, "train.weight_decay=0.0")
    assert len(found.variants) == 1
    assert found.notes[0].endswith(" changes nothing: another combination has the same effect")
    assert len(design(text, "train.weight_decay=0.1").variants) == 2


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        (
            "sizes: [{train.decay: all}, {train.decay: matrices}]\ndesign: []",
            "train.decay matrices",
        ),
        (
            "design: [{product: {train.weight_decay: [0.0], train.decay: [all, matrices]}}]",
            "train.decay matrices",
        ),
        (
            "design: [{product: {positional: [sinusoidal, rotary], train.decay: [all, matrices]}}]",
            "train.decay matrices",
        ),
    ],
    ids=["size", "product", "two variants"],
)
def test_the_note_names_the_fields_without_effect_that_differ(design, text, fields):
    found = design(text, "train.weight_decay=0.0")
    note = f"{fields} changes nothing: another combination has the same effect"
    assert found.notes == (note,)


def test_schedules_and_their_options_are_axes(design):
    found = design("design: [{one_at_a_time: {train.schedule: [wsd, {name: wsd, final_lr: 0.5}]}}]")
    assert slugs(found) == ["schedule-cosine", "schedule-wsd", "schedule-wsd-final_lr-0.5"]
    found = design("design: [{one_at_a_time: {train.schedule.final_lr: [0.5]}}]")
    assert slugs(found) == ["final_lr-0", "final_lr-0.5"]
    excluded = design("""
        design: [{one_at_a_time: {train.schedule: [wsd, {name: wsd, final_lr: 0.5}, constant]}}]
        exclude: [{when: {train.schedule: wsd}, reason: why}]
    """)
    assert slugs(excluded) == ["schedule-cosine", "schedule-constant"]


def test_an_exclusion_that_matches_nothing_is_noted(design):
    found = design(GRID + "exclude: [{when: {positional: alibi}, reason: why}]")
    assert found.notes == ("x.yaml:11: exclude[0]: the exclusion matches no combination",)


def test_a_contradiction_in_a_cell_is_refused_and_reported(design):
    found = design("""
        design: [{product: {model.tie_embeddings: [none, all], data.vocabulary.shared: [false, true]}}]
    """)
    assert [(record.slug, record.source) for record in found.excluded] == [
        ("tie_embeddings-all-shared-false", "incompatible")
    ]
    assert "set data.vocabulary.shared: true" in found.excluded[0].reason


ERRORS = [
    (
        "design:\n  - product:\n      masking:\n        - causal\n        - casual",
        "design[0].product.masking[1]",
        "'causal'",
    ),
    (
        "design: [{product: {d_model: [8, 16]}}]",
        "design[0].product.d_model",
        "did you mean 'model.d_model'",
    ),
    ("design: [{product: {model: [{}]}}]", "design[0].product.model", "'model' is a section, not"),
    (
        "design: [{product: {train.num_microbatches: [1, 2]}}]",
        "design[0].product.train.num_microbatches",
        "'train.num_microbatches' does not change any",
    ),
    ("design: [{product: {positional: []}}]", "design[0].product.positional", "a list of values"),
    (
        "design: [{one_at_a_time: {positional: [rotary, none, rotary]}}]",
        "design[0].one_at_a_time.positional[2]",
        "axis 'positional' lists this value",
    ),
    (
        "design: [{product: {model.encoder_layers: [1], model.decoder_layers: [2], model.layers: [1, 2]}}]",
        "design[0].product",
        "model.layers and model.encoder_layers + model.decoder_layers are both given; keep one",
    ),
    (
        "design: [{zip: {model.d_model: [4, 8], model.heads: [2]}}]",
        "design[0].zip",
        "zip requires lists of equal",
    ),
    ("design: [{product: {zip: [1, 2]}}]", "design[0].product.zip", "expected a mapping of axes"),
    (
        "design: [{zip: {train.epochs: [8, 9], train.steps: [8, 9]}}]",
        "design[0].zip",
        "are both given; keep one of them",
    ),
    (
        "design: [{product: {model.d_model: [4, 16], zip: {model.d_model: [2, 32], train.lr: [0.1, 0.01]}}}]",
        "design[0].product.zip.model.d_model",
        "is an axis of this product",
    ),
    (
        "design: [{product: {positional: [none]}, zip: {positional: [none]}}]",
        "design[0]",
        "a block requires one of",
    ),
    (
        "exclude: [{when: {match: paramters}, reason: why}]",
        "exclude[0].when.match",
        "did you mean 'parameters'",
    ),
    (
        "exclude: [{when: {positional: sinusoidal}, reason: why}]",
        "exclude[0]",
        "this excludes the baseline, which",
    ),
    (
        "baseline: {model: {architecture: decoder-only}}\ndesign: [{one_at_a_time: {positional.encoder: [rotary]}}]",
        "design[0].one_at_a_time.positional.encoder[0]",
        "a decoder-only model has neither encoder nor cross-attention",
    ),
    ("exclude: [{when: {}, reason: why}]", "exclude[0].when", "no axis values are given"),
    (
        "design: [{product: {positional: [rotary], data: [copy, reverse]}}]\n"
        "contrasts: [{variant: {positional: rotary, data: copy}, against: {positional: rotary, data: reverse}}]",
        "contrasts[0]",
        "scores on different data are",
    ),
    (
        "design: [{between: {from: {}, to: {}}}]\ncontrasts: [{variant: {}}]",
        "contrasts",
        "a file with between has no",
    ),
    (
        "design: [{one_at_a_time: {recipe: [scratch-en-rf]}}]",
        "design[0].one_at_a_time.recipe[0]",
        "scratch-en-fr",
    ),
    (
        "design: [{one_at_a_time: {recipe: [{name: scratch-en-fr, model.d_modle: 4}]}}]",
        "design[0].one_at_a_time.recipe[0].model.d_modle",
        "did you mean 'd_model'?",
    ),
    ("sed: 3", "sed", "did you mean 'seeds'?"),
    ("design:\n  - prodct: {}", "design[0].prodct", "did you mean 'product'?"),
    ("design:\n  - product:\n      positional: rotary", "design[0].product.positional", "a list"),
    ("seeds: {until: decided, at_most: 2}", "seeds.at_most", "greater than or equal to 3"),
    ("seeds: [1, 2, 1]", "seeds", "duplicate seed 1"),
    (
        "design: [{one_at_a_time: {positional.theta: [100]}}]",
        "design[0].one_at_a_time.positional.theta[0]",
        "rotary-scaled have it",
    ),
    ("metrics: {primary: test/blue}", "metrics.primary", "did you mean 'test/bleu'?"),
    (
        "metrics: {report: [valid/loss, test/blue]}",
        "metrics.report[1]",
        "did you mean 'test/bleu'?",
    ),
    (
        "metrics: {primary: system/train_seconds}",
        "metrics.primary",
        "its seeds do not repeat the measurement; list it in metrics.report",
    ),
    (
        "contrasts: [{name: c, variant: {}, metric: system/tokens_per_second}]",
        "contrasts[0].metric",
        "its seeds do not repeat the measurement; list it in metrics.report",
    ),
    (
        "metrics: {primary: attention/encoder/entropy}",
        "metrics.primary",
        "attention/encoder/entropy",
    ),
]


@pytest.mark.parametrize(("text", "field", "word"), ERRORS)
def test_every_error_of_a_design_is_a_line_with_its_location(design, text, field, word):
    message = refused(design, text)
    line = len((SMALL + text).splitlines())
    assert message.startswith(f"x.yaml:{line}: {field}:")
    assert word in message


TWO_DATASETS = """
design:
  - product:
      positional: [sinusoidal, rotary]
      data: [{dataset: toy-grammar, size: 400}, {dataset: reverse, longest: 6}, copy]
"""


def test_variants_on_other_data_are_contrasted_with_the_baselines_other_values_on_the_same_data(
    design,
):
    contrasts = design(TWO_DATASETS).contrasts()
    settings = {contrast.family: weights(contrast) for contrast in contrasts}
    plain = [
        (contrast.variant, contrast.against)
        for contrast in contrasts
        if contrast.family == "variant"
    ]
    same_data = [
        (f"rotary-{data}", f"sinusoidal-{data}")
        for data in ("toy-grammar-size-400", "reverse-longest-6", "copy")
    ]
    assert plain == same_data
    assert [contrast.name for contrast in contrasts[:2]] == [
        "rotary instead of sinusoidal (the toy grammar with 400 sentences)",
        "rotary instead of sinusoidal (reversal with examples of length 6 and shorter)",
    ]
    assert settings["factor"] == [difference(*pair) for pair in same_data]
    lost = design(
        TWO_DATASETS + "exclude: [{when: {positional: sinusoidal, data: copy}, reason: why}]"
    )
    assert all("rotary-copy" not in contrast.variants for contrast in lost.contrasts())
    (copy_rotary, copy_sinusoidal), (toy_rotary, toy_sinusoidal) = same_data[2], same_data[0]
    assert settings["interaction"] == [
        {copy_rotary: 1, copy_sinusoidal: -1, toy_rotary: -1, toy_sinusoidal: 1}
    ]
    assert {contrast.effects[0].axis for contrast in contrasts if contrast.effects} == {
        "positional"
    }


def test_interactions_with_data_compare_within_data_whatever_the_order_of_axes(design):
    found = design(
        "design: [{product: {data: [toy-grammar, copy], positional: [sinusoidal, rotary]}}]"
    )
    (interaction,) = of_family(found, "interaction")
    assert [effect.axis for effect in interaction.effects] == ["positional", "data"]
    for setting in weights(interaction):
        sums = {}
        for slug, weight in setting.items():
            data = found.variant(slug).config.data.dataset
            sums[data] = sums.get(data, 0) + weight
        assert sums == {"toy-grammar": 0, "copy": 0}


def test_a_block_without_the_axis_data_has_the_label_of_the_baseline(design):
    found = design(TWO_DATASETS + "  - one_at_a_time: {model.layers: [2]}\n")
    assert (
        found.variant("sinusoidal-toy-grammar-size-400-layers-2").axes["data"]
        == "toy-grammar(size=400)"
    )


GROUPS = """
baseline: {attention: split-heads}
design: [{zip: {attention: [grouped-query, grouped-query], attention.kv_heads: [1, 2]}}]
"""
THETA = """
baseline: {positional: none}
design: [{one_at_a_time: {positional: [rotary, {name: rotary, theta: 500}]}}]
"""


@pytest.mark.parametrize(
    ("text", "values", "slug"),
    [
        (
            GROUPS,
            "{attention: grouped-query, attention.kv_heads: 1}",
            "grouped-query-attention.kv_heads-1",
        ),
        (THETA, "{positional: rotary, positional.theta: 500}", "rotary-theta-500"),
    ],
)
def test_a_contrast_selects_a_variant_by_an_option_that_the_baseline_does_not_have(
    design, text, values, slug
):
    found = design(text + f"contrasts: [{{variant: {values}}}]")
    (declared,) = of_family(found, "declared")
    assert weights(declared) == [difference(slug, found.baseline)]


def test_factor_contrasts_pair_variants_that_differ_in_one_axis(design):
    found = factors(design(GRID))
    assert [effects(contrast) for contrast in found] == [
        [("positional", "rotary", "sinusoidal")],
        [("positional", "none", "sinusoidal")],
        [("attention", "single-head", "split-heads")],
    ]
    assert weights(found[0]) == [
        difference("rotary-split-heads", "sinusoidal-split-heads"),
        difference("rotary-single-head", "sinusoidal-single-head"),
    ]


def test_an_incomplete_pair_is_omitted_and_counted(design):
    found = factors(
        design(GRID + "exclude: [{when: {positional: none, attention: single-head}, reason: why}]")
    )
    none = next(item for item in found if item.effects[0].value == "none")
    assert weights(none) == [difference("none-split-heads", "sinusoidal-split-heads")]
    assert none.missing == 1


ROLE = """
baseline: {attention: split-heads, attention.cross: uniform}
design:
  - product: {attention: [split-heads, independent-heads], attention.cross: [uniform, split-heads]}
"""


def test_a_family_and_a_role_of_it_have_an_interaction(design):
    found = design(ROLE)
    (interaction,) = of_family(found, "interaction")
    assert [effect.axis for effect in interaction.effects] == ["attention", "attention.cross"]
    assert weights(interaction) == [
        {
            "independent-heads-attention.cross-split-heads": 1,
            "split-heads-attention.cross-split-heads": -1,
            "independent-heads-attention.cross-uniform": -1,
            "split-heads-attention.cross-uniform": 1,
        }
    ]


def test_an_arm_is_contrasted_within_itself(design):
    found = factors(
        design("""
        baseline: {positional: sinusoidal, attention: split-heads}
        design:
          - product:
              positional: [sinusoidal, rotary]
              attention: [split-heads, single-head]
          - product:
              positional: [sinusoidal, rotary]
              attention: [split-heads, single-head]
              match: [parameters]
    """)
    )
    assert [item.name for item in found] == [
        "rotary instead of sinusoidal",
        "a single head instead of split heads",
        "rotary instead of sinusoidal with equal parameters",
        "a single head instead of split heads with equal parameters",
        "with equal parameters instead of sizes as configured",
    ]
    assert found[3].given == {"match": "parameters"}
    assert weights(found[3])[0] == difference(
        "sinusoidal-single-head-match-parameters", "sinusoidal-split-heads-match-parameters"
    )


def test_an_arm_is_contrasted_with_the_block_that_it_departs_from(design):
    found = factors(
        design("""
        match: parameters
        design:
          - product: {positional: [sinusoidal, rotary], attention: [split-heads, single-head]}
          - product: {positional: [sinusoidal, rotary], match: [none]}
    """)
    )
    assert found[-1].name == "with sizes as configured instead of equal parameters"
    assert weights(found[-1]) == [
        difference("sinusoidal-split-heads-match-none", "sinusoidal-split-heads-match-parameters"),
        difference("rotary-split-heads-match-none", "rotary-split-heads-match-parameters"),
    ]
    assert len(found) == 3


AXES = {
    "positional": ["sinusoidal", "rotary", "none", "learned", "alibi"],
    "attention": ["split-heads", "single-head", "independent-heads"],
    "model.d_model": [8, 16, 24],
    "model.norm": ["pre", "post"],
    "train.lr": [1e-3, 1e-4, 3e-4],
}


@st.composite
def blocks(draw):
    kind = draw(st.sampled_from(["product", "one_at_a_time", "zip"]))
    names = draw(st.lists(st.sampled_from(list(AXES)), min_size=1, max_size=3, unique=True))
    size = draw(st.integers(1, 2))
    least, most = (size, size) if kind == "zip" else (1, 3)
    lists = {
        name: st.lists(st.sampled_from(AXES[name]), min_size=least, max_size=most, unique=True)
        for name in names
    }
    return {kind: draw(st.fixed_dictionaries(lists))}


@settings(max_examples=25, deadline=None)
@given(st.lists(blocks(), max_size=3))
def test_expansion_agrees_with_a_naive_count(registry, given_blocks):
    base = {"train": {"epochs": 1}, "model": {"d_model": 8, "heads": 2}}
    content = {"question": "q", "base": base, "design": given_blocks}
    found = expand(load_text(dump(content), Path("x.yaml")))

    start = {axis: values[0] for axis, values in AXES.items()}
    wanted = {tuple(start.values())}
    for block in given_blocks:
        for changes in naive_block(block):
            wanted.add(tuple((start | changes).values()))
    assert len(found.variants) == len(wanted)
    assert len({variant.slug for variant in found.variants}) == len(wanted)
    assert found.baseline == found.variants[0].slug
    assert all(
        set(variant.slug) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-")
        for variant in found.variants
    )
    for variant in found.variants:
        actual = {
            "positional": variant.config.positional.decoder.name,
            "attention": variant.config.attention.decoder.name,
            "model.d_model": variant.config.model.d_model,
            "model.norm": variant.config.model.norm,
            "train.lr": variant.config.train.lr,
        }
        assert tuple(actual.values()) in wanted
        assert {axis: actual[axis] for axis in found.axes} == dict(variant.axes)
    for contrast in factors(found):
        for left, right in contrast.settings:
            ours, theirs = found.variant(left.variant).axes, found.variant(right.variant).axes
            differing = [axis for axis in ours if ours[axis] != theirs[axis]]
            assert differing == [contrast.effects[0].axis]


def naive_block(block):
    ((kind, values),) = block.items()
    if kind == "one_at_a_time":
        return [{name: value} for name, listed in values.items() for value in listed]
    combinations = (
        itertools.product(*values.values())
        if kind == "product"
        else zip(*values.values(), strict=True)
    )
    return [dict(zip(values, combination, strict=True)) for combination in combinations]


def test_a_multiple_of_the_width_excludes_by_each_variants_width(design):
    found = design("""
        design:
          - product: {model.d_model: [4, 16], model.d_ff: [2x, 4x]}
        exclude:
          - {when: {model.d_ff: 4x}, reason: too wide}
    """)
    assert {
        variant.axes["model.d_ff"] for variant in found.variants if variant.slug != found.baseline
    } == {"2x"}
    assert len(found.excluded) == 2


def test_names_of_the_file_replace_phrases_and_change_neither_slug_nor_hash(design):
    named = design(GRID + "names: {positional: {rotary: RoPE, none: no positions at all}}\n")
    plain = design(GRID)
    assert slugs(named) == slugs(plain)
    assert [variant.config for variant in named.variants] == [
        variant.config for variant in plain.variants
    ]
    titles = {variant.slug: variant.title for variant in named.variants}
    assert titles["rotary-split-heads"] == "RoPE"
    assert titles["sinusoidal-split-heads"] == "sinusoidal, split heads"  # not named
    assert "RoPE instead of sinusoidal" in {contrast.name for contrast in factors(named)}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            "{positionall: {rotary: RoPE}}",
            "names.positionall: 'positionall' is no axis of this design",
        ),
        (
            "{positional: {rotari: RoPE}}",
            "'rotari' is no value of positional; expected one of 'sinusoidal', 'rotary', 'none'",
        ),
        ("{positional: RoPE}", "names.positional: expected a mapping of values and names, such as"),
        ("{positional: {rotary: ''}}", "names.positional.rotary"),
    ],
)
def test_a_name_of_nothing_is_refused_with_its_place(design, names: str, message: str) -> None:
    assert message in refused(design, f"{GRID}names: {names}\n")
