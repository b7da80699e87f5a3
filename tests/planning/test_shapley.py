"""Shapley paths between two configurations: choices, coalitions, permutations and incompatible coalitions."""

import itertools
import json
import math
import re
import textwrap
from pathlib import Path

import pytest

from headtohead.config.identity import run_hash
from headtohead.errors import HeadToHeadError
from headtohead.planning.design import expand
from headtohead.planning.overview import overview
from headtohead.planning.planner import make_plan
from headtohead.planning.shapley import sample_orders
from headtohead.plugins.registry import load_registry

BASE = """
question: q
base:
  data: {dataset: toy-grammar, size: 120}
  model: {d_model: 8, heads: 2, layers: 1, d_ff: 16, dropout: 0, final_norm: false}
  train: {epochs: 1, batch_tokens: 256}
"""
PLUGIN = '''
import headtohead


class Left(headtohead.Recipe):
    """One end."""

    config = {
        "model": {"d_model": 64, "norm": "post", "embedding_scale": "one"},
        "positional": "none",
        "train": {"epochs": 9, "lr": 1e-4, "checkpoint_seconds": 5},
    }


class Right(headtohead.Recipe):
    """The other end."""

    config = {
        "model": {"d_model": 32, "norm": "pre"},
        "positional": {"name": "rotary", "theta": 500},
        "train": {"steps": 7, "lr": 1e-3},
    }


@headtohead.hookimpl
def register_recipes():
    return {"left": Left, "right": Right}
'''
FOUR = """
design:
  - path:
      from: {model.norm: pre, model.activation: relu, train.lr: 1.0e-3, model.bias: true}
      to: {model.norm: post, model.activation: gelu, train.lr: 2.0e-3, model.bias: false}
"""
NAMES = ("model.norm", "model.activation", "model.bias", "train.lr")
TIED = """
design:
  - path:
      from: {train.lr: 1.0e-3, model.norm: pre, model.bias: true}
      to: {train.lr: 2.0e-3, model.norm: post, model.bias: false, model.tie_embeddings: all,
           data.vocabulary.shared: true}
"""


@pytest.fixture(scope="module")
def recipes(tmp_path_factory):
    file = tmp_path_factory.mktemp("plugin") / "ends.py"
    file.write_text(PLUGIN)
    return load_registry([file])


@pytest.fixture
def design(load, recipes):
    def design(text, *overrides, base=BASE, **options):
        return expand(load(base + textwrap.dedent(text), *overrides), recipes, **options)

    return design


@pytest.fixture
def plan(load, recipes, cache, tmp_path):
    def plan(text, *overrides, base=BASE, seeds=2):
        loaded = load(base + textwrap.dedent(text), *overrides, seeds=seeds)
        return make_plan(loaded, recipes, tmp_path / "runs", cache)

    return plan


def changed(found, variant):
    """Return the choices in which a variant equals the end."""
    start = found.variants[0].axes
    return frozenset(name for name, value in variant.axes.items() if value != start[name])


def choices(found):
    return {choice.name: (choice.before, choice.after) for choice in found.path.choices}


# the ends and their differences


def test_base_overrides_both_recipes_and_other_fields_are_the_difference(design):
    found = design("design: [{path: {from: recipe/left, to: recipe/right}}]")
    assert choices(found) == {
        "positional.encoder": ("none", "rotary(theta=500)"),
        "positional.decoder": ("none", "rotary(theta=500)"),
        "model.embedding_scale": ("one", "sqrt-d_model"),
        "model.norm": ("post", "pre"),
        "train.lr": (1e-4, 1e-3),
    }
    assert {variant.config.model.d_model for variant in found.variants} == {8}
    assert {variant.config.train.epochs for variant in found.variants} == {1}
    assert found.baseline == "from"
    assert found.path.names == ("left", "right")


def test_every_notation_of_an_end_has_the_run_hash_of_a_design_of_axes(design, load, recipes):
    found = design("design: [{path: {from: recipe/left, to: recipe/right}}]")
    for variant, recipe in zip(found.variants[:2], ("left", "right"), strict=True):
        without_path = expand(load(BASE.replace("base:\n", f"base:\n  recipe: {recipe}\n")), recipes)
        (baseline,) = without_path.variants
        keys = [run_hash(side.config, 1, "f", recipes) for side in (variant, baseline)]
        assert keys[0] == keys[1]


def test_an_override_applies_to_both_ends(design):
    found = design(FOUR, "model.norm=post", "model.d_model=4")
    assert tuple(choices(found)) == ("model.activation", "model.bias", "train.lr")
    assert {variant.config.model.d_model for variant in found.variants} == {4}


def test_fields_that_do_not_affect_results_are_not_a_choice(design):
    found = design("""
        design:
          - path:
              from: {train: {num_microbatches: 2, checkpoint_seconds: 1, lr: 1.0e-3}}
              to: {train: {backend: eager, lr: 2.0e-3}, model: {layers: 1}}
    """)
    assert tuple(choices(found)) == ("train.lr",)


def test_inseparable_fields_are_one_choice_and_an_entry_includes_its_options(design):
    found = design(
        """
        design:
          - path:
              from: {train: {epochs: 1}, data: {dataset: toy-grammar, size: 100}}
              to: {train: {steps: 9}, data: {dataset: toy-grammar, size: 140, split: length}}
        """,
        base="question: q\nbase: {train: {batch_tokens: 256}}\n",
    )
    assert choices(found) == {
        "data.dataset+split": (
            "dataset toy-grammar(size=100), split iid",
            "dataset toy-grammar(size=140), split length",
        ),
        "train.epochs+steps": ("epochs 1, steps nothing", "epochs nothing, steps 9"),
    }


def test_a_path_between_two_tokenizer_files_has_this_choice(design):
    found = design("""
        design:
          - path:
              from: {train.lr: 1.0e-3, data.vocabulary.file: first.json}
              to: {train.lr: 2.0e-3, data.vocabulary.file: second.json}
    """)
    ends = {name: tuple(Path(str(value)).name for value in pair) for name, pair in choices(found).items()}
    assert ends == {"data.vocabulary.file": ("first.json", "second.json"), "train.lr": ("0.001", "0.002")}


def test_a_file_may_name_groups_of_fields(design):
    found = design(FOUR + "      groups: {block: [model.norm, model.activation], rest: [train]}\n")
    assert choices(found) == {
        "block": ("norm pre, activation relu", "norm post, activation gelu"),
        "model.bias": (True, False),
        "rest": (0.001, 0.002),
    }


def test_a_choice_changes_only_its_fields(design):
    found = design(FOUR)
    start, end = found.variants[:2]
    for variant in found.variants:
        applied = changed(found, variant)
        for name in NAMES:
            section, field = name.split(".")
            source = end if name in applied else start
            assert getattr(getattr(variant.config, section), field) == getattr(getattr(source.config, section), field)
        rest = {"model": set(), "train": set()}
        for name in NAMES:
            rest[name.split(".")[0]].add(name.split(".")[1])
        assert variant.config.model_dump(exclude=rest) == start.config.model_dump(exclude=rest)


# permutations


def test_every_permutation_occurs_once_and_is_followed_by_its_reverse():
    orders = list(sample_orders("abcd", 1))
    assert sorted(orders) == sorted(itertools.permutations("abcd"))
    assert all(right == left[::-1] for left, right in zip(orders[::2], orders[1::2], strict=True))


def test_permutations_depend_only_on_the_seed_and_more_of_them_have_the_same_start():
    def first(number, seed):
        return list(itertools.islice(sample_orders("abcdefgh", seed), number))

    assert first(16, 1)[:8] == first(8, 1)
    assert first(8, 1) != first(8, 2)
    assert first(2, 1)[0] == ("b", "d", "h", "a", "c", "e", "g", "f")  # the same on every machine


def test_every_choice_has_every_position_with_about_equal_frequency():
    names = "abcdef"
    counts = {(name, position): 0 for name in names for position in range(6)}
    for seed in range(1, 601):
        for position, name in enumerate(next(sample_orders(names, seed))):
            counts[name, position] += 1
    expected = 600 / 6
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 46.8  # χ² with 25 degrees of freedom


def test_a_path_has_its_ends_all_single_differences_and_the_coalitions_of_its_permutations(design):
    found = design(FOUR)
    everything = frozenset(NAMES)
    coalitions = {changed(found, variant) for variant in found.variants}
    assert len(coalitions) == len(found.variants)
    wanted = {frozenset(), everything}
    wanted |= {frozenset([name]) for name in NAMES} | {everything - {name} for name in NAMES}
    for permutation in found.path.permutations:
        wanted |= {step.coalition for step in permutation}
    assert coalitions == wanted
    assert len(found.path.permutations) == 8
    assert len({tuple(step.choices for step in permutation) for permutation in found.path.permutations}) == 8


def test_a_permutation_applies_each_choice_once_from_one_end_to_the_other(design):
    for permutation in design(FOUR).path.permutations:
        applied = frozenset()
        for step in permutation:
            (name,) = step.choices
            assert step.coalition == applied | {name}
            applied = step.coalition
        assert applied == frozenset(NAMES)


def test_all_permutations_are_evaluated_if_there_are_few(design):
    found = design(FOUR.replace(", model.bias: true", "").replace(", model.bias: false", ""))
    assert len(found.path.permutations) == math.factorial(3) == found.path.possible
    assert found.notes == ("path: all 6 permutations of 3 choices are evaluated",)


def test_more_permutations_include_the_coalitions_of_fewer(design):
    fewer = design(FOUR)
    more = design(FOUR + "      orders: 12\n")
    assert len(more.path.permutations) == 12
    assert more.path.permutations[:8] == fewer.path.permutations
    assert {variant.slug for variant in fewer.variants} <= {variant.slug for variant in more.variants}


def test_all_of_600_orders_are_evaluated(design):
    text = FOUR.replace("model.norm: pre,", "model.norm: pre, train.eps: 1.0e-9, train.weight_decay: 0,")
    text = text.replace("model.norm: post,", "model.norm: post, train.eps: 1.0e-8, train.weight_decay: 0.1,")
    found = design(text + "      orders: 600\n")
    assert len(found.path.choices) == 6
    assert len(found.path.permutations) == 600


def test_another_seed_samples_other_permutations(design):
    orders = [
        [step.choices for permutation in design(FOUR + extra).path.permutations for step in permutation]
        for extra in ("", "      orders_seed: 2\n")
    ]
    assert orders[0] != orders[1]


def test_names_are_short_and_axes_have_the_values(design):
    found = design(FOUR)
    assert [variant.slug for variant in found.variants][:7] == [
        "from",
        "to",
        "from-plus-model.norm",
        "from-plus-model.activation",
        "from-plus-model.bias",
        "from-plus-train.lr",
        "to-minus-model.norm",
    ]
    titles = {variant.slug: variant.title for variant in found.variants}
    assert titles["from"] == "from start"
    assert titles["from-plus-model.norm"] == "from + model.norm"
    assert titles["to-minus-train.lr"] == "to − train.lr"
    inside = [variant for variant in found.variants if variant.slug.startswith("permutation-")]
    assert inside
    assert all(variant.title == variant.slug.replace("-", " ") for variant in inside)
    assert dict(inside[0].axes).keys() == set(NAMES)


def test_two_choices_share_the_coalitions_between_the_ends(design):
    found = design("""
        design: [{path: {from: {model.norm: pre, train.lr: 1.0e-3},
                         to: {model.norm: post, train.lr: 2.0e-3}}}]
    """)
    assert [variant.slug for variant in found.variants] == ["from", "to", "from-plus-model.norm", "from-plus-train.lr"]
    record = found.path.record.to_json()["choices"]
    assert [(choice["alone"], choice["without"]) for choice in record] == [
        ("from-plus-model.norm", "from-plus-train.lr"),
        ("from-plus-train.lr", "from-plus-model.norm"),
    ]


def test_a_single_choice_is_the_whole_path(design):
    found = design("design: [{path: {from: {model.norm: pre}, to: {model.norm: post}}}]")
    assert [variant.slug for variant in found.variants] == ["from", "to"]
    assert [contrast.pairs for contrast in found.contrasts()[1:]] == [(("to", "from"),)]


def test_the_contrasts_are_the_total_difference_and_each_choice_over_all_permutations(design):
    found = design(FOUR)
    whole, *each = found.contrasts()
    assert (whole.kind, whole.variant, whole.baseline) == ("variant", "to", "from")
    assert [contrast.choices for contrast in each] == [(name,) for name in NAMES]
    by_slug = {variant.slug: changed(found, variant) for variant in found.variants}
    for contrast in each:
        assert len(contrast.pairs) == 8
        for after, before in contrast.pairs:
            assert by_slug[after] - by_slug[before] == set(contrast.choices)


# incompatible coalitions


def test_compatible_permutations_are_preferred_and_the_others_are_counted(design):
    found = design(TIED)
    path = found.path
    assert len(path.permutations) == 8
    for permutation in path.permutations:
        order = [name for step in permutation for name in step.choices]
        assert all(len(step.choices) == 1 for step in permutation)
        assert order.index("data.vocabulary.shared") < order.index("model.tie_embeddings")
    reason = "tie_embeddings 'all' requires one vocabulary; set data.vocabulary.shared: true"
    assert path.tried == 8 + path.blocked[reason]
    assert (
        f"path: {path.tried - 8} of {path.tried} sampled permutations contain an incompatible coalition "
        f"({reason})" in found.notes
    )


def test_a_difference_that_is_incompatible_alone_is_excluded_with_its_reason(design):
    found = design(TIED)
    reason = "tie_embeddings 'all' requires one vocabulary; set data.vocabulary.shared: true"
    assert [(record.slug, record.title, record.reason, record.source) for record in found.excluded] == [
        ("from-plus-model.tie_embeddings", "from + model.tie_embeddings", reason, "incompatible"),
        ("to-minus-data.vocabulary.shared", "to − data.vocabulary.shared", reason, "incompatible"),
    ]
    assert {(item.choice, item.end, item.needs) for item in found.path.inseparable} == {
        ("model.tie_embeddings", "from", ("data.vocabulary.shared",)),
        ("data.vocabulary.shared", "to", ("model.tie_embeddings",)),
    }
    record = {choice["name"]: choice for choice in found.path.record.to_json()["choices"]}
    assert record["model.tie_embeddings"]["alone"] is None
    assert record["model.tie_embeddings"]["without"] == "to-minus-model.tie_embeddings"
    assert any(
        note == f"path: model.tie_embeddings is incompatible when applied alone: {reason}; "
        "it requires data.vocabulary.shared"
        for note in found.notes
    )


def test_without_a_compatible_permutation_inseparable_choices_are_applied_as_a_group(design):
    def find_incompatibility(config):
        """Norm and bias are inseparable."""
        applied = config.model.norm == "post", not config.model.bias
        return "norm and bias are inseparable" if applied[0] != applied[1] else None

    found = design(FOUR, find_incompatibility=find_incompatibility)
    path = found.path
    assert len(path.permutations) == 8
    assert path.blocked == {"norm and bias are inseparable": path.tried}
    for permutation in path.permutations:
        groups = [step for step in permutation if len(step.choices) > 1]
        assert len(groups) == 1
        assert {"model.norm", "model.bias"} <= set(groups[0].choices)
        assert not any(path.coalitions[step.coalition].incompatibility for step in permutation)
    joint = [contrast for contrast in found.contrasts() if len(getattr(contrast, "choices", ())) > 1]
    pairs = sum(len(contrast.pairs) for contrast in joint)
    assert pairs == 8
    trained = {variant.slug for variant in found.variants}
    for contrast in found.contrasts()[1:]:
        assert {slug for pair in contrast.pairs for slug in pair} <= trained
    assert [len(contrast.choices) for contrast in found.contrasts()[1:]].count(1) == 2
    assert any("are applied as a group in" in note for note in found.notes)
    assert {record.source for record in found.excluded} == {"incompatible"}


def test_an_exclusion_of_the_file_makes_a_coalition_incompatible(design):
    found = design(FOUR + "exclude: [{when: {model.norm: post, model.bias: true}, reason: why}]")
    for permutation in found.path.permutations:
        order = [name for step in permutation for name in step.choices]
        assert order.index("model.bias") < order.index("model.norm")
    assert [(record.slug, record.reason, record.source) for record in found.excluded] == [
        ("from-plus-model.norm", "why", "exclude"),
        ("to-minus-model.bias", "why", "exclude"),
    ]


def test_incompatibilities_with_the_data_are_found(plan):
    found = plan("""
        design:
          - path:
              from: {positional: sinusoidal, train.lr: 1.0e-3}
              to: {positional.encoder: {name: learned, max_length: 8}, data.max_words: 5,
                   train.lr: 2.0e-3}
    """)
    reason = "tokens is longer than the 8 positions of learned"
    assert [record.slug for record in found.design.excluded if reason in record.reason] == [
        "from-plus-positional.encoder",
        "to-minus-data.max_words",
    ]
    assert {(item.choice, item.needs) for item in found.design.path.inseparable} == {
        ("positional.encoder", ("data.max_words",)),
        ("data.max_words", ("positional.encoder",)),
    }


# errors


def failure(design, text, *overrides, **options):
    with pytest.raises(HeadToHeadError) as caught:
        design(text, *overrides, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "design: [{path: {from: recipe/left, to: recipe/rigt}}]",
            "x.yaml:7: design[0].path.to: unknown recipe 'rigt'; did you mean 'right'?",
        ),
        (
            "design: [{path: {from: left, to: recipe/right}}]",
            "x.yaml:7: design[0].path.from: expected recipe/NAME or a mapping of fields, got 'left'; "
            "did you mean 'recipe/left'?",
        ),
        ("design: [{path: {from: recipe/left}}]", "x.yaml:7: design[0].path: field 'to' is missing"),
        ("design: [{path: {from: recipe/left, to: 7}}]", "x.yaml:7: design[0].path.to: expected text, got 7"),
        (
            "design: [{path: {from: recipe/left, to: recipe/left}}]",
            "x.yaml:7: design[0].path: both ends are the same after base is merged over them; remove the fields that "
            "should differ from base",
        ),
        (
            "design: [{path: {from: recipe/left, to: {model.nrm: pre}}}]",
            "x.yaml:7: design[0].path.to.model.nrm: unknown field 'nrm'; did you mean 'norm'?",
        ),
        (
            "design: [{path: {from: recipe/left, to: recipe/right, orders: 4}}]",
            "x.yaml:7: design[0].path.orders: must be at least 8, got 4",
        ),
        (
            "design: [{path: {from: recipe/left, to: recipe/right, groups: {a: [train.lrr]}}}]",
            "x.yaml:7: design[0].path.groups.a[0]: unknown field 'train.lrr'; did you mean 'train.lr'?",
        ),
        (
            "design: [{path: {from: recipe/left, to: recipe/right, groups: {a: [train], b: [train.lr]}}}]",
            "x.yaml:7: design[0].path.groups.b[0]: 'train.lr' already belongs to 'a'",
        ),
        (
            "design: [{path: {from: recipe/left, to: recipe/right, groups: {model.norm: [train.lr]}}}]",
            "x.yaml:7: design[0].path.groups: two choices have the name 'model.norm'; rename one of them",
        ),
        (
            "design: [{path: {from: recipe/left, to: recipe/right}}, {product: {positional: [none]}}]",
            "x.yaml:7: design: a path must be the only block of a design, got 2 blocks; use one file per question",
        ),
        (
            "baseline: {positional: none}\ndesign: [{path: {from: recipe/left, to: recipe/right}}]",
            "x.yaml:7: baseline: the baseline of a path is its start; move these fields to base, which is merged over "
            "both ends",
        ),
        (
            "design: [{path: {from: {model: {tie_embeddings: all}}, to: recipe/right}}]",
            "x.yaml:7: design[0].path.from.model.tie_embeddings: tie_embeddings 'all' requires one vocabulary; set "
            "data.vocabulary.shared: true",
        ),
        (
            "design: [{path: {from: recipe/left, to: {attention: split-heads, model.heads: 3}}}]\n"
            "exclude: [{when: {train.lr: 1e-3}, reason: why}]",
            "x.yaml:8: exclude[0]: this excludes an end of the path; narrow the exclusion",
        ),
        (
            "design: [{path: {from: recipe/left, to: {evaluate.decode: none}}}]",
            "x.yaml:2: metrics.primary: 'test/exact_match' requires translations, but variant 'to' has "
            "evaluate.decode: none; use test/token_accuracy, or another evaluate.decode",
        ),
    ],
)
def test_every_error_of_a_path_is_a_line_with_its_location(design, text, message):
    assert failure(design, text) == message


def test_a_recipe_in_base_is_an_error(design):
    base = BASE.replace("base:\n", "base:\n  recipe: left\n")
    message = failure(design, "design: [{path: {from: recipe/left, to: recipe/right}}]", base=base)
    assert message == (
        "x.yaml:4: base.recipe: a path's recipes are its ends, and base is merged over both; remove this recipe"
    )


def test_an_incompatible_end_is_an_error_at_that_end(plan):
    message = failure(
        plan,
        """
        design: [{path: {from: {model.bias: true},
                         to: {positional: {name: learned, max_length: 3}}}}]
    """,
    )
    assert message.startswith("x.yaml:9: design[0].path.to: a source of ")
    assert "is longer than the 3 positions of learned" in message


# plan and record


def test_the_plan_counts_coalitions_permutations_and_runs(plan):
    found = plan(FOUR)
    coalitions = len(found.variants)
    summary = overview(found)
    inside = coalitions - 2 - 8
    assert summary.lines[2] == (
        f"path: start to end, 4 choices, 8 permutations; {coalitions} coalitions: 2 ends, 8 single differences, "
        f"{inside} inside permutations (h2h plan {found.loaded.path} --format json lists them)"
    )
    assert any(line.startswith(f"runs: {coalitions} variants × 2 seeds = {2 * coalitions}") for line in summary.lines)
    assert len(summary.rows) == 2 + 8
    assert summary.sections["choices"] == (
        "model.norm: pre → post",
        "model.activation: relu → gelu",
        "model.bias: true → false",
        "train.lr: 0.001 → 0.002",
    )
    assert "path: 8 of 24 permutations are evaluated, sampled with seed 1" in found.notes


def test_power_is_that_of_the_total_difference_without_the_choices(plan):
    assert {family.family: family.contrasts for family in plan(FOUR).power} == {"variant": 1}


def test_the_record_has_the_permutations_and_is_valid_json(plan):
    found = plan(TIED)
    record = json.loads(json.dumps(found.record().to_json(), allow_nan=False))
    path = record["path"]
    slugs = {variant["slug"] for variant in record["variants"]}
    axes = {variant["slug"]: variant["axes"] for variant in record["variants"]}
    assert path["start"] == {"slug": "from", "name": "start"}
    assert path["orders"]["possible"] == 120
    for permutation in path["permutations"]:
        slug = "from"
        for step in permutation:
            assert step["slug"] in slugs
            differing = {n for n in axes[slug] if axes[slug][n] != axes[step["slug"]][n]}
            assert differing == set(step["choices"])
            slug = step["slug"]
        assert slug == "to"
    assert [combination["title"] for combination in record["excluded"]] == [
        "from + model.tie_embeddings",
        "to − data.vocabulary.shared",
    ]


def test_a_design_without_a_path_has_none_in_its_record(plan):
    assert plan("design: [{product: {positional: [none]}}]").record().to_json()["path"] is None


def test_match_widens_the_coalitions_of_a_path(plan):
    found = plan("""
        match: parameters
        design: [{path: {from: {attention: split-heads, train.lr: 1.0e-3},
                         to: {attention: independent-heads, train.lr: 2.0e-3}}}]
    """)
    counts = [variant.counts.non_embedding for variant in found.variants]
    assert max(counts) / min(counts) < 1.02


def test_the_example_of_the_page_is_a_valid_path(load):
    page = Path(__file__).parents[2] / "docs" / "reference" / "experiment-file.md"
    (example,) = re.findall(r"```text\n(design:.*?)```", page.read_text("utf-8"), re.DOTALL)
    base = "data: {dataset: toy-grammar, split: iid, normalise: none, vocabulary: {ids: standard}}"
    text = f"question: q\nbase: {{{base}, train.steps: 1}}\n{example}"
    text += "metrics: {primary: test/chrf}\n"
    found = expand(load(text), load_registry())
    assert found.path.names == ("slides-en-fr", "tatoeba-en-es")
