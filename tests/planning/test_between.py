"""Designs between two configurations: their changes, variants, contrasts and incompatible changes."""

import pytest

from headtohead.config.builder import ConfigBuilder
from headtohead.config.identity import run_hash
from headtohead.planning.between import changes_between
from headtohead.planning.overview import overview
from headtohead.plugins.recipe import Recipe
from headtohead.plugins.registry import current
from made import plugin_of, refused, separate_registry
from planning.conftest import SMALL

ENDS = {
    "left": {
        "model": {"d_model": 64, "norm": "post", "embedding_scale": "one"},
        "positional": "none",
        "train": {"epochs": 9, "lr": 1e-4, "checkpoint_seconds": 5},
    },
    "right": {
        "model": {"d_model": 32, "norm": "pre"},
        "positional": {"name": "rotary", "theta": 500},
        "train": {"steps": 7, "lr": 1e-3},
    },
}
FOUR = """
design:
  - between:
      from: {model.norm: pre, model.embedding_scale: one, train.lr: 1.0e-3, model.bias: true}
      to: {model.norm: post, model.embedding_scale: sqrt-d_model, train.lr: 2.0e-3, model.bias: false}
"""
NAMES = ("model.embedding_scale", "model.norm", "model.bias", "train.lr")
TIED = """
design:
  - between:
      from: {train.lr: 1.0e-3, model.norm: pre, model.bias: true}
      to: {train.lr: 2.0e-3, model.norm: post, model.bias: false, model.tie_embeddings: all,
           data.vocabulary.shared: true}
"""


@pytest.fixture(scope="module")
def registry():
    recipes = {name: type(name, (Recipe,), {"config": config}) for name, config in ENDS.items()}
    with separate_registry(plugin_of(recipe=recipes)):
        yield current()


def changed(found, variant):
    """Return the changes in which a variant equals the second configuration."""
    start = found.variants[0].axes
    return frozenset(name for name, value in variant.axes.items() if value != start[name])


def changes(found):
    before, after = (found.variant(slug).axes for slug in ("from", "to"))
    return {name: (before[name], after[name]) for name in found.axes}


# the ends and their differences


def test_base_overrides_both_recipes_and_other_fields_are_the_difference(design):
    found = design("design: [{between: {from: {recipe: left}, to: {recipe: right}}}]")
    assert changes(found) == {
        "positional.encoder": ("none", "rotary(theta=500)"),
        "positional.decoder": ("none", "rotary(theta=500)"),
        "model.embedding_scale": ("one", "sqrt-d_model"),
        "model.norm": ("post", "pre"),
        "train.lr": (1e-4, 1e-3),
    }
    assert {variant.config.model.d_model for variant in found.variants} == {8}
    assert {variant.config.train.epochs for variant in found.variants} == {1}
    assert found.baseline == "from"
    assert [variant.title for variant in found.variants[:2]] == ["left", "right"]


def test_every_notation_of_an_end_has_the_run_hash_of_a_design_of_axes(design):
    found = design("design: [{between: {from: {recipe: left}, to: {recipe: right}}}]")
    for variant, recipe in zip(found.variants[:2], ("left", "right"), strict=True):
        plain = design(f"baseline: {{recipe: {recipe}}}")
        (baseline,) = plain.variants
        keys = [run_hash(side.config, 1, "f") for side in (variant, baseline)]
        assert keys[0] == keys[1]


def test_inseparable_fields_are_one_change_and_an_entry_includes_its_options(design):
    found = design(
        """
        design:
          - between:
              from: {train: {epochs: 1}, data: {dataset: toy-grammar, size: 100}}
              to: {train: {steps: 9}, data: {dataset: toy-grammar, size: 140, split: length}}
        """,
        base="question: q\nbase: {train: {batch_tokens: 256}}\n",
    )
    assert changes(found) == {
        "data.dataset+split": (
            "dataset toy-grammar(size=100), split iid",
            "dataset toy-grammar(size=140), split length",
        ),
        "train.epochs+steps": ("epochs 1, steps nothing", "epochs nothing, steps 9"),
    }


def test_a_file_may_name_groups_of_fields(design):
    found = design(
        FOUR + "      groups: {block: [model.norm, model.embedding_scale], rest: [train]}\n"
    )
    assert changes(found) == {
        "block": ("embedding_scale one, norm pre", "embedding_scale sqrt-d_model, norm post"),
        "model.bias": (True, False),
        "rest": (0.001, 0.002),
    }


def test_a_field_of_a_named_group_is_in_no_other_change():
    ends = []
    for number in (8, 16):
        end = ConfigBuilder()
        end.merge({"train.batch_size": number, "train.pad_to": number, "train.epochs": 1}, end.root)
        ends.append(end)
    groups = {"batch": ["train.batch_size"]}
    assert changes_between(*ends, groups, ends[0].root) == {
        "batch": (("train", "batch_size"),),
        "train.pad_to": (("train", "pad_to"),),
    }


@pytest.mark.parametrize(
    ("ratio", "names"), [("4x", ["model.d_model"]), ("2x", ["model.d_model", "model.d_ff"])]
)
def test_values_that_derive_from_others_follow_them(design, ratio, names):
    base = "question: q\nbase: {data: {dataset: toy-grammar, size: 120}, train: {epochs: 1}}\n"
    found = design(
        f"""
        design:
          - between:
              from: {{model: {{d_model: 8, d_ff: 4x, norm: pre}}}}
              to: {{model: {{d_model: 16, d_ff: {ratio}, norm: post}}}}
        """,
        base=base,
    )
    assert list(changes(found)) == [*names, "model.norm"]
    added = {variant.slug: variant.config.model for variant in found.variants}
    assert (added["from-plus-model.d_model"].d_ff, added["to"].d_ff) == (64, 16 * int(ratio[0]))
    assert not added["from-plus-model.norm"].final_norm


# variants and contrasts


def test_every_change_is_added_to_the_first_configuration_and_taken_from_the_second(design):
    found = design(FOUR)
    assert len(found.variants) == 2 * len(NAMES) + 2
    total, *single = found.contrasts()
    assert (total.family, total.variant, total.against) == ("variant", "to", "from")
    assert [(contrast.family, contrast.effects[0].axis) for contrast in single] == [
        (kind, name) for kind in ("added", "taken") for name in NAMES
    ]
    for contrast in single:
        assert (contrast.against if contrast.family == "added" else contrast.variant) in (
            "from",
            "to",
        )
        left, right = (
            changed(found, found.variant(slug)) for slug in (contrast.variant, contrast.against)
        )
        assert left - right == {contrast.effects[0].axis}
        assert right <= left


# incompatible changes


def test_a_change_that_is_incompatible_by_itself_is_excluded_and_has_no_contrast(design):
    found = design(TIED)
    reason = "tie_embeddings 'all' requires one vocabulary; set data.vocabulary.shared: true"
    assert [
        (record.slug, record.title, record.reason, record.source) for record in found.excluded
    ] == [
        (
            "from-plus-model.tie_embeddings",
            "the first configuration, with all embeddings tied",
            reason,
            "incompatible",
        ),
        (
            "to-minus-data.vocabulary.shared",
            "the second configuration, without a shared vocabulary",
            reason,
            "incompatible",
        ),
    ]
    tested = {(contrast.family, contrast.effects[0].axis) for contrast in found.contrasts()[1:]}
    assert ("added", "model.tie_embeddings") not in tested
    assert ("taken", "data.vocabulary.shared") not in tested
    assert len(tested) == 2 * 5 - 2


def test_an_exclusion_of_the_file_excludes_a_variant(design):
    found = design(FOUR + "exclude: [{when: {model.norm: post, model.bias: true}, reason: why}]")
    assert [(record.slug, record.reason, record.source) for record in found.excluded] == [
        ("from-plus-model.norm", "why", "exclude"),
        ("to-minus-model.bias", "why", "exclude"),
    ]


def test_ends_without_any_single_change_keep_their_names_and_contrast(design, plan):
    text = """
        design: [{between: {from: {model.norm: pre, train.lr: 1.0e-3}, to: {model.norm: post, train.lr: 2.0e-3}}}]
        names: {from: Old, to: New}
        exclude:
          - {when: {model.norm: post, train.lr: 1.0e-3}, reason: why}
          - {when: {model.norm: pre, train.lr: 2.0e-3}, reason: why}
    """
    found = design(text)
    assert [variant.slug for variant in found.variants] == ["from", "to"]
    assert [(record.name, record.family) for record in found.contrasts()] == [
        ("New instead of Old", "variant")
    ]
    assert len(overview(plan(text)).sections["changes"]) == 2


def test_incompatibilities_with_the_data_are_found(plan):
    found = plan("""
        design:
          - between:
              from: {positional: sinusoidal, train.lr: 1.0e-3}
              to: {positional.encoder: {name: learned, max_length: 8}, data.max_words: 5,
                   train.lr: 2.0e-3}
    """)
    reason = "tokens is longer than the 8 positions of learned"
    assert [record.slug for record in found.design.excluded if reason in record.reason] == [
        "from-plus-positional.encoder",
        "to-minus-data.max_words",
    ]


# errors


BOTH = "from: {recipe: left}, to: {recipe: right}"
ERRORS = [
    (
        f"design: [{{between: {{{BOTH.replace('right', 'rigt')}}}}}]",
        "design[0].between.to.recipe",
        "mean 'right'",
    ),
    (
        f"design: [{{between: {{{BOTH.replace('right', 'left')}}}}}]",
        "design[0].between",
        "configurations are the same",
    ),
    (
        f"design: [{{between: {{{BOTH}, groups: {{a: [train], b: [train.lr]}}}}}}]",
        "design[0].between.groups.b[0]",
        "'train.lr' already belongs to 'a'",
    ),
    (
        f"design: [{{between: {{{BOTH}, groups: {{model.norm: [train.lr]}}}}}}]",
        "design[0].between.groups",
        "two changes have the name",
    ),
    (
        f"design: [{{between: {{{BOTH}}}}}, {{product: {{positional: [none]}}}}]",
        "design",
        "between must be the only",
    ),
    (
        f"design: [{{between: {{{BOTH}}}}}]\nbaseline: {{positional: none}}",
        "baseline",
        "a file with between has no",
    ),
    (
        "design: [{between: {from: {recipe: left}, to: {attention: split-heads, model.heads: 3}}}]\n"
        "exclude: [{when: {train.lr: 1e-3}, reason: why}]",
        "exclude[0]",
        "this excludes the configuration 'to'",
    ),
]


@pytest.mark.parametrize(("text", "field", "word"), ERRORS)
def test_every_error_is_a_line_with_its_location(design, text, field, word):
    message = refused(design, text)
    line = len((SMALL + text).splitlines())
    assert message.startswith(f"x.yaml:{line}: {field}:")
    assert word in message


# plan and record


def test_the_plan_lists_the_changes_and_every_variant(plan):
    summary = overview(plan(FOUR, seeds=2))
    assert any(line.startswith("runs: 10 variants × 2 seeds = 20") for line in summary.lines)
    assert len(summary.rows) == 10
    assert summary.sections["changes"] == (
        "model.embedding_scale: one → sqrt-d_model",
        "model.norm: pre → post",
        "model.bias: true → false",
        "train.lr: 0.001 → 0.002",
    )


def test_an_empty_mapping_of_one_end_does_not_get_a_value_of_the_other(design):
    ends = "{from: {data: {vocabulary: {}}}, to: {data: {vocabulary: {max_size: 50}}}}"
    found = design(f"design: [{{between: {ends}}}]")
    assert [variant.config.data.vocabulary.max_size for variant in found.variants[:2]] == [None, 50]
