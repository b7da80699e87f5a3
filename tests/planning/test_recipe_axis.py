"""The recipe as an axis: fields from the recipe, overridden by base, overridden by the fields of an axis value."""

from headtohead.planning.record import experiment_record

BESIDE = """
baseline: {recipe: scratch-en-fr}
design:
  - one_at_a_time:
      recipe:
        - {name: scratch-en-fr, positional: learned, train.lr: 0.5}
        - by-hand-en-fr
"""


def test_base_overrides_recipes_and_fields_of_a_recipe_value_override_base(design):
    found = design(BESIDE)
    configs = {variant.slug: variant.config for variant in found.variants}
    assert list(configs) == [
        "scratch-en-fr",
        "scratch-en-fr-positional-learned-lr-0.5",
        "by-hand-en-fr",
    ]
    assert found.baseline == "scratch-en-fr"
    assert found.axes == ("recipe",)
    first, changed, by_hand = configs.values()
    assert {config.model.d_model for config in configs.values()} == {
        8
    }  # base overrides the recipes
    assert first.quirks.min_vocab_size == changed.quirks.min_vocab_size == 5000
    assert (first.model.mask_value, by_hand.quirks.decoder_feed_forward) == ("-1e9", "after-each")
    assert (first.positional.encoder.name, changed.positional.encoder.name) == (
        "sinusoidal",
        "learned",
    )
    assert (first.train.lr, changed.train.lr) == (1e-3, 0.5)
    assert by_hand.quirks.min_vocab_size is None  # no field of the baseline's recipe remains


def test_the_record_has_the_pitfalls_of_the_measured_data(plan):
    """A row split is a pitfall only with a leak, which these data do not have."""
    found = plan("baseline: {masking: causal, data.split: row}\n")
    (variant,) = experiment_record(found).to_json()["variants"]
    assert [pitfall["name"] for pitfall in variant["pitfalls"]] == ["padding not masked"]
