"""Saved translations: the table of a run, and variants with other test sentences than the baseline."""

import pytest

from headtohead.analysis.study import Analysis
from headtohead.storage.frames import load_frames
from headtohead.storage.translations import joined_references, read_translations, split_references


@pytest.mark.parametrize("references", [("a ||| b", "c"), ("|||",), ("x\\y", "\\p", "z"), ("plain",)])
def test_references_with_the_separator_are_split_as_joined(references):
    assert split_references(joined_references(references)) == references


def test_a_table_of_translations_is_read_as_written(quickstart):
    run = next(quickstart.glob("rotary-split-heads-causal-s1-*"))
    found = read_translations(run)
    assert len(found) == 250
    assert found[0].source == "the black cat does not eat it"
    assert found[0].exact == (found[0].hypothesis in found[0].references)


def test_other_test_sentences_are_found_if_the_first_seed_has_no_translations(made, analysed):
    analysis = analysed(
        axes={"data.split": ["grouped", "row"]},
        config=lambda axes: {"data": {"split": axes["data.split"]}},
        states={("row", 1): "FAILED"},
        seeds=(1, 2, 3, 4),
        allow_partial=True,
    )
    folder = analysis.frames.directory
    assert analysis.other_test_sentences == []
    for file in folder.glob("row-*/translations.tsv"):
        file.write_text(file.read_text().replace("the black cat", "the white cat"))
        made.record_checksums(file.parent)
    assert Analysis(load_frames(folder), allow_partial=True).other_test_sentences == ["row"]
