"""Paths between two configurations: differences, points, walks and what has no meaning."""

import itertools
import json
import math
import re
import textwrap
from pathlib import Path

import pytest

from headtohead.config.identity import run_key
from headtohead.errors import HeadToHeadError
from headtohead.planning.design import expand
from headtohead.planning.overview import overview
from headtohead.planning.planner import make_plan
from headtohead.planning.shapley import drawn_orders
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
    """Return the choices that a variant has as the end has them."""
    start = found.variants[0].axes
    return frozenset(name for name, value in variant.axes.items() if value != start[name])


def choices(found):
    return {one.name: (one.before, one.after) for one in found.path.choices}


# the ends and their differences


def test_base_is_laid_over_both_recipes_and_the_rest_is_the_difference(design):
    found = design("design: [{path: {from: recipe/left, to: recipe/right}}]")
    assert choices(found) == {
        "positional.encoder": ("none", "rotary(theta=500)"),
        "positional.decoder": ("none", "rotary(theta=500)"),
        "model.embedding_scale": ("one", "sqrt-d_model"),
        "model.norm": ("post", "pre"),
        "train.lr": (1e-4, 1e-3),
    }
    assert {one.config.model.d_model for one in found.variants} == {8}
    assert {one.config.train.epochs for one in found.variants} == {1}
    assert found.baseline == "from"
    assert found.path.names == ("left", "right")


def test_every_spelling_of_an_end_is_the_run_that_a_design_of_axes_would_train(design, load, recipes):
    found = design("design: [{path: {from: recipe/left, to: recipe/right}}]")
    for variant, recipe in zip(found.variants[:2], ("left", "right"), strict=True):
        alone = expand(load(BASE.replace("base:\n", f"base:\n  recipe: {recipe}\n")), recipes)
        (baseline,) = alone.variants
        keys = [run_key(one.config, 1, "f", recipes) for one in (variant, baseline)]
        assert keys[0] == keys[1]


def test_an_override_holds_for_both_ends(design):
    found = design(FOUR, "model.norm=post", "model.d_model=4")
    assert tuple(choices(found)) == ("model.activation", "model.bias", "train.lr")
    assert {one.config.model.d_model for one in found.variants} == {4}


def test_what_a_result_does_not_depend_on_is_no_difference(design):
    found = design("""
        design:
          - path:
              from: {train: {num_microbatches: 2, checkpoint_seconds: 1, lr: 1.0e-3}}
              to: {train: {backend: eager, lr: 2.0e-3}, model: {layers: 1}}
    """)
    assert tuple(choices(found)) == ("train.lr",)


def test_fields_that_mean_nothing_apart_are_one_choice_and_an_entry_takes_its_options(design):
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


def test_a_file_may_name_fields_that_change_together(design):
    found = design(FOUR + "      together: {block: [model.norm, model.activation], rest: [train]}\n")
    assert choices(found) == {
        "block": ("norm pre, activation relu", "norm post, activation gelu"),
        "model.bias": (True, False),
        "rest": (0.001, 0.002),
    }


def test_a_choice_moves_its_fields_and_no_other(design):
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


# orders and walks


def test_orders_are_all_there_once_each_followed_by_its_reverse():
    orders = list(drawn_orders("abcd", 1))
    assert sorted(orders) == sorted(itertools.permutations("abcd"))
    assert all(right == left[::-1] for left, right in zip(orders[::2], orders[1::2], strict=True))


def test_orders_depend_on_their_seed_alone_and_more_of_them_begin_alike():
    def first(number, seed):
        return list(itertools.islice(drawn_orders("abcdefgh", seed), number))

    assert first(16, 1)[:8] == first(8, 1)
    assert first(8, 1) != first(8, 2)
    assert first(2, 1)[0] == ("b", "d", "h", "a", "c", "e", "g", "f")  # on any machine


def test_every_choice_takes_every_place_about_equally_often():
    names = "abcdef"
    counts = {(name, place): 0 for name in names for place in range(6)}
    for seed in range(1, 601):
        for place, name in enumerate(next(drawn_orders(names, seed))):
            counts[name, place] += 1
    expected = 600 / 6
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 46.8  # χ², 25 df


def test_a_path_has_its_ends_every_single_difference_at_both_and_the_points_of_its_walks(design):
    found = design(FOUR)
    everything = frozenset(NAMES)
    points = {changed(found, variant) for variant in found.variants}
    assert len(points) == len(found.variants)
    wanted = {frozenset(), everything}
    wanted |= {frozenset([name]) for name in NAMES} | {everything - {name} for name in NAMES}
    for walk in found.path.walks:
        wanted |= {step.point for step in walk}
    assert points == wanted
    assert len(found.path.walks) == 8
    assert len({tuple(step.choices for step in walk) for walk in found.path.walks}) == 8


def test_a_walk_applies_each_choice_once_from_one_end_to_the_other(design):
    for walk in design(FOUR).path.walks:
        here = frozenset()
        for step in walk:
            (name,) = step.choices
            assert step.point == here | {name}
            here = step.point
        assert here == frozenset(NAMES)


def test_all_orders_are_walked_where_there_are_few(design):
    found = design(FOUR.replace(", model.bias: true", "").replace(", model.bias: false", ""))
    assert len(found.path.walks) == math.factorial(3) == found.path.possible
    assert found.notes == ("path: all 6 orders of 3 choices are walked",)


def test_more_orders_keep_the_points_of_fewer(design):
    fewer = design(FOUR)
    more = design(FOUR + "      orders: 12\n")
    assert len(more.path.walks) == 12
    assert more.path.walks[:8] == fewer.path.walks
    assert {one.slug for one in fewer.variants} <= {one.slug for one in more.variants}


def test_another_seed_walks_other_orders(design):
    orders = [
        [step.choices for walk in design(FOUR + extra).path.walks for step in walk]
        for extra in ("", "      orders_seed: 2\n")
    ]
    assert orders[0] != orders[1]


def test_names_are_short_and_details_stand_in_the_axes(design):
    found = design(FOUR)
    assert [one.slug for one in found.variants][:7] == [
        "from",
        "to",
        "from-plus-model.norm",
        "from-plus-model.activation",
        "from-plus-model.bias",
        "from-plus-train.lr",
        "to-minus-model.norm",
    ]
    titles = {one.slug: one.title for one in found.variants}
    assert titles["from"] == "from start"
    assert titles["from-plus-model.norm"] == "from + model.norm"
    assert titles["to-minus-train.lr"] == "to − train.lr"
    walked = [one for one in found.variants if one.slug.startswith("walk-")]
    assert walked
    assert all(one.title == one.slug.replace("-", " ") for one in walked)
    assert dict(walked[0].axes).keys() == set(NAMES)


def test_two_choices_share_the_points_between_the_ends(design):
    found = design("""
        design: [{path: {from: {model.norm: pre, train.lr: 1.0e-3},
                         to: {model.norm: post, train.lr: 2.0e-3}}}]
    """)
    assert [one.slug for one in found.variants] == ["from", "to", "from-plus-model.norm", "from-plus-train.lr"]
    record = found.path.record.to_json()["choices"]
    assert [(one["alone"], one["without"]) for one in record] == [
        ("from-plus-model.norm", "from-plus-train.lr"),
        ("from-plus-train.lr", "from-plus-model.norm"),
    ]


def test_a_single_choice_is_the_whole_path(design):
    found = design("design: [{path: {from: {model.norm: pre}, to: {model.norm: post}}}]")
    assert [one.slug for one in found.variants] == ["from", "to"]
    assert [one.pairs for one in found.contrasts()[1:]] == [(("to", "from"),)]


def test_what_is_tested_is_the_distance_and_each_choice_over_all_walks(design):
    found = design(FOUR)
    whole, *each = found.contrasts()
    assert (whole.kind, whole.variant, whole.baseline) == ("variant", "to", "from")
    assert [one.choices for one in each] == [(name,) for name in NAMES]
    by_slug = {one.slug: changed(found, one) for one in found.variants}
    for one in each:
        assert len(one.pairs) == 8
        for after, before in one.pairs:
            assert by_slug[after] - by_slug[before] == set(one.choices)


# points without a meaning


def test_orders_that_can_be_walked_go_first_and_the_others_are_counted(design):
    found = design(TIED)
    path = found.path
    assert len(path.walks) == 8
    for walk in path.walks:
        order = [name for step in walk for name in step.choices]
        assert all(len(step.choices) == 1 for step in walk)
        assert order.index("data.vocabulary.shared") < order.index("model.tie_embeddings")
    reason = "tie_embeddings 'all' requires one vocabulary; set data.vocabulary.shared: true"
    assert path.tried == 8 + path.blocked[reason]
    assert (
        f"path: {path.tried - 8} of {path.tried} orders looked at pass a point without a "
        f"meaning ({reason})" in found.notes
    )


def test_a_difference_that_has_no_meaning_alone_is_excluded_with_its_reason(design):
    found = design(TIED)
    reason = "tie_embeddings 'all' requires one vocabulary; set data.vocabulary.shared: true"
    assert [(one.slug, one.title, one.reason, one.source) for one in found.excluded] == [
        ("from-plus-model.tie_embeddings", "from + model.tie_embeddings", reason, "undefined"),
        ("to-minus-data.vocabulary.shared", "to − data.vocabulary.shared", reason, "undefined"),
    ]
    assert {(one.choice, one.end, one.needs) for one in found.path.apart} == {
        ("model.tie_embeddings", "from", ("data.vocabulary.shared",)),
        ("data.vocabulary.shared", "to", ("model.tie_embeddings",)),
    }
    record = {one["name"]: one for one in found.path.record.to_json()["choices"]}
    assert record["model.tie_embeddings"]["alone"] is None
    assert record["model.tie_embeddings"]["without"] == "to-minus-model.tie_embeddings"
    assert any(
        note == f"path: model.tie_embeddings alone has no meaning: {reason}; not without data.vocabulary.shared"
        for note in found.notes
    )


def test_where_no_order_can_be_walked_the_walk_steps_over_the_point(design):
    def undefined(config):
        """Norm and bias have no meaning apart, whatever the rest is."""
        moved = config.model.norm == "post", not config.model.bias
        return "norm and bias go together" if moved[0] != moved[1] else None

    found = design(FOUR, undefined=undefined)
    path = found.path
    assert len(path.walks) == 8
    assert path.blocked == {"norm and bias go together": path.tried}
    for walk in path.walks:
        together = [step for step in walk if len(step.choices) > 1]
        assert len(together) == 1
        assert {"model.norm", "model.bias"} <= set(together[0].choices)
        assert [step.point for step in walk if path.points[step.point].refusal] == []
    joint = [one for one in found.contrasts() if len(getattr(one, "choices", ())) > 1]
    pairs = sum(len(one.pairs) for one in joint)
    assert pairs == 8
    live = {one.slug for one in found.variants}
    for one in found.contrasts()[1:]:
        assert {slug for pair in one.pairs for slug in pair} <= live
    assert [len(one.choices) for one in found.contrasts()[1:]].count(1) == 2
    assert any("are applied together in" in note for note in found.notes)
    assert {one.source for one in found.excluded} == {"undefined"}


def test_an_exclusion_of_the_file_is_stepped_around_too(design):
    found = design(FOUR + "exclude: [{when: {model.norm: post, model.bias: true}, reason: why}]")
    for walk in found.path.walks:
        order = [name for step in walk for name in step.choices]
        assert order.index("model.bias") < order.index("model.norm")
    assert [(one.slug, one.reason, one.source) for one in found.excluded] == [
        ("from-plus-model.norm", "why", "exclude"),
        ("to-minus-model.bias", "why", "exclude"),
    ]


def test_what_only_the_data_can_tell_is_asked_of_the_data(plan):
    found = plan("""
        design:
          - path:
              from: {positional: sinusoidal, train.lr: 1.0e-3}
              to: {positional.encoder: {name: learned, max_length: 8}, data.max_words: 5,
                   train.lr: 2.0e-3}
    """)
    reason = "tokens is longer than the 8 places of learned"
    assert [one.slug for one in found.design.excluded if reason in one.reason] == [
        "from-plus-positional.encoder",
        "to-minus-data.max_words",
    ]
    assert {(one.choice, one.needs) for one in found.design.path.apart} == {
        ("positional.encoder", ("data.max_words",)),
        ("data.max_words", ("positional.encoder",)),
    }


# what is refused


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
            "x.yaml:7: design[0].path: the two ends do not differ once base is laid over both; leave "
            "what they should differ in out of base",
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
            "design: [{path: {from: recipe/left, to: recipe/right, together: {a: [train.lrr]}}}]",
            "x.yaml:7: design[0].path.together.a[0]: unknown field 'train.lrr'; did you mean 'train.lr'?",
        ),
        (
            "design: [{path: {from: recipe/left, to: recipe/right, together: {a: [train], b: [train.lr]}}}]",
            "x.yaml:7: design[0].path.together.b[0]: 'train.lr' already belongs to 'a'",
        ),
        (
            "design: [{path: {from: recipe/left, to: recipe/right, together: {model.norm: [train.lr]}}}]",
            "x.yaml:7: design[0].path.together: two choices are called 'model.norm'; name one of them otherwise",
        ),
        (
            "design: [{path: {from: recipe/left, to: recipe/right}}, {product: {positional: [none]}}]",
            "x.yaml:7: design: a path stands alone in its design, got 2 blocks; give each question a file of its own",
        ),
        (
            "baseline: {positional: none}\ndesign: [{path: {from: recipe/left, to: recipe/right}}]",
            "x.yaml:7: baseline: a path is compared with its start; lay over both ends what stands "
            "here by moving it to base",
        ),
        (
            "design: [{path: {from: {model: {tie_embeddings: all}}, to: recipe/right}}]",
            "x.yaml:7: design[0].path.from.model.tie_embeddings: tie_embeddings 'all' requires one vocabulary; set "
            "data.vocabulary.shared: true",
        ),
        (
            "design: [{path: {from: recipe/left, to: {attention: split-heads, model.heads: 3}}}]\n"
            "exclude: [{when: {train.lr: 1e-3}, reason: why}]",
            "x.yaml:8: exclude[0]: this leaves out an end of the path",
        ),
        (
            "design: [{path: {from: recipe/left, to: {evaluate.decode: none}}}]",
            "x.yaml:2: metrics.primary: 'test/exact_match' needs translations, and the path's 'to' "
            "has evaluate.decode: none; use test/token_accuracy, or set evaluate.decode in base",
        ),
    ],
)
def test_every_fault_of_a_path_is_one_line_with_its_place(design, text, message):
    assert failure(design, text) == message


def test_the_recipe_of_base_would_lie_over_both_ends_and_is_refused(design):
    base = BASE.replace("base:\n", "base:\n  recipe: left\n")
    message = failure(design, "design: [{path: {from: recipe/left, to: recipe/right}}]", base=base)
    assert message == (
        "x.yaml:4: base.recipe: the recipes of a path are its ends, and base is laid over both; leave it out"
    )


def test_an_end_without_a_meaning_is_an_error_at_that_end(plan):
    message = failure(
        plan,
        """
        design: [{path: {from: {model.bias: true},
                         to: {positional: {name: learned, max_length: 3}}}}]
    """,
    )
    assert message.startswith("x.yaml:9: design[0].path.to: a source of ")
    assert "is longer than the 3 places of learned" in message


# plan and record


def test_the_plan_counts_points_orders_and_runs(plan):
    found = plan(FOUR)
    points = len(found.variants)
    told = overview(found)
    inside = points - 2 - 8
    assert told.lines[2] == (
        f"path: start to end, 4 choices, 8 orders; {points} points: 2 ends, 8 single differences, "
        f"{inside} inside walks (h2h plan {found.loaded.path} --format json lists them)"
    )
    assert any(line.startswith(f"runs: {points} variants × 2 seeds = {2 * points}") for line in told.lines)
    assert len(told.rows) == 2 + 8
    assert told.sections["choices"] == (
        "model.norm: pre → post",
        "model.activation: relu → gelu",
        "model.bias: true → false",
        "train.lr: 0.001 → 0.002",
    )
    assert "path: 8 of 24 orders are walked, drawn with seed 1; the others are not sampled" in (found.notes)


def test_power_is_that_of_the_distance_and_of_the_choices(plan):
    families = {one.family: one.contrasts for one in plan(FOUR).power}
    assert families == {"variant": 1, "choice": 4}


def test_the_record_holds_the_walks_and_nothing_that_json_lacks(plan):
    found = plan(TIED)
    record = json.loads(json.dumps(found.record().to_json(), allow_nan=False))
    path = record["path"]
    slugs = {one["slug"] for one in record["variants"]}
    axes = {one["slug"]: one["axes"] for one in record["variants"]}
    assert path["start"] == {"slug": "from", "name": "start"}
    assert path["orders"]["possible"] == 120
    for walk in path["walks"]:
        here = "from"
        for step in walk:
            assert step["slug"] in slugs
            differing = {n for n in axes[here] if axes[here][n] != axes[step["slug"]][n]}
            assert differing == set(step["choices"])
            here = step["slug"]
        assert here == "to"
    assert [one["title"] for one in record["excluded"]] == [
        "from + model.tie_embeddings",
        "to − data.vocabulary.shared",
    ]


def test_a_design_without_a_path_has_none_in_its_record(plan):
    assert plan("design: [{product: {positional: [none]}}]").record().to_json()["path"] is None


def test_match_widens_the_points_of_a_path(plan):
    found = plan("""
        match: parameters
        design: [{path: {from: {attention: split-heads, train.lr: 1.0e-3},
                         to: {attention: independent-heads, train.lr: 2.0e-3}}}]
    """)
    counts = [one.counts.non_embedding for one in found.variants]
    assert max(counts) / min(counts) < 1.02


def test_the_example_of_the_page_is_a_path(load):
    page = Path(__file__).parents[2] / "docs" / "reference" / "experiment-file.md"
    (example,) = re.findall(r"```text\n(design:.*?)```", page.read_text("utf-8"), re.DOTALL)
    base = "data: {dataset: toy-grammar, split: iid, normalise: none, vocabulary: {ids: standard}}"
    text = f"question: q\nbase: {{{base}, train.steps: 1}}\n{example}"
    text += "metrics: {primary: test/chrf}\n"
    found = expand(load(text), load_registry())
    assert found.path.names == ("slides-en-fr", "tatoeba-en-es")
