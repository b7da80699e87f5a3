"""Notes of a plan on tests with sentences longer than those of training."""

from __future__ import annotations


def length_notes(found):
    return [note for note in found.notes if "max_length" in note or "bucket" in note]


def plan_of(load, registry, cache, tmp_path, *overrides):
    from headtohead.planning.planner import make_plan

    text = """
question: q
base:
  data: {dataset: reverse, split: length, longest: 6, size: 600}
  model: {d_model: 8, heads: 2, layers: 1, d_ff: 16}
  train: {epochs: 1}
metrics: {primary: test/token_accuracy}
"""
    return make_plan(load(text, *overrides), registry, tmp_path / "runs", cache)


def test_references_longer_than_the_decoding_limit_are_counted(load, registry, cache, tmp_path):
    """Translations have at most 10 tokens, 1.5 times 6 and <eos>; references have 2, 20 and 10 times 50."""
    notes = length_notes(plan_of(load, registry, cache, tmp_path))
    assert notes == [
        "100 of 522 test references are longer than the decoding limit of 10 words: set evaluate.max_length: 12",
        "the longest training source has 6 tokens, which is inside a bucket of evaluate.buckets: add a bound "
        "at 6 to separate lengths that were trained on from longer ones",
    ]


def test_there_is_no_note_if_both_limits_are_set(load, registry, cache, tmp_path):
    sound = plan_of(load, registry, cache, tmp_path, "evaluate.max_length=12", "evaluate.buckets=[3,6,9,12]")
    assert length_notes(sound) == []


def test_without_translations_reference_lengths_are_not_compared(load, registry, cache, tmp_path):
    notes = length_notes(plan_of(load, registry, cache, tmp_path, "evaluate.decode=none"))
    assert [note.split(":")[0] for note in notes] == [
        "the longest training source has 6 tokens, which is inside a bucket of evaluate.buckets"
    ]
