"""Notes of a plan on tests with sentences longer than those of training."""

import pytest

from headtohead.planning.notes import notes_of

TEXT = """
question: q
base:
  data: {dataset: reverse, split: length, longest: 6, size: 600}
  model: {d_model: 8, heads: 2, layers: 1, d_ff: 16}
  train: {epochs: 1}
metrics: {primary: test/token_accuracy}
"""
REFERENCES = (
    "150 of 522 test references and their end exceed the decoding limit of 10 words: "
    "set evaluate.max_length: 13"
)
BUCKET = (
    "the longest training example has 6 tokens, and a bucket of evaluate.buckets has test examples of 6 to 8: add a "
    "bound at 6 to separate lengths that were trained on from longer ones"
)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], [REFERENCES, BUCKET]),
        (["evaluate.max_length=13", "evaluate.buckets=[3,6,9,12]"], []),
        (["evaluate.decode=none"], [BUCKET]),
        # None of the three examples that are scored has 6 to 8 tokens.
        (["evaluate.decode=none", "evaluate.test_limit=3"], []),
    ],
)
def test_long_test_sentences_are_noted_unless_the_limits_are_set(plan, overrides, expected):
    """Translations have at most 10 tokens, 1.5 times 6 and <eos>; references have 2, 20 and 10 times 50."""
    found = plan("", *overrides, base=TEXT)
    assert [
        note for note in notes_of(found) if "max_length" in note or "bucket" in note
    ] == expected
