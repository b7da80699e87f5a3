import numpy as np
import pytest
from sacrebleu.metrics import BLEU

from headtohead.analysis import sentences
from headtohead.analysis.sentences import compare, other_test_sentences
from headtohead.analysis.study import Analysis
from headtohead.storage.frames import load_frames
from headtohead.storage.translations import (
    Translation,
    joined_references,
    median_seed,
    read_translations,
    split_references,
)


def rows(hypotheses, *references):
    references = references or ("a b c d e",)
    return [Translation(f"s{i}", references, text, text in references) for i, text in enumerate(hypotheses)]


def test_the_same_translations_do_not_differ():
    ours = rows(["a b c d e"] * 10 + ["a b x d e"] * 5)
    first, second, p = compare(ours, ours)
    assert first == second
    assert p == 1.0


def test_a_clearly_better_model_differs_significantly():
    good, bad = rows(["a b c d e"] * 40), rows(["a b x d e"] * 40)
    ours, theirs, p = compare(good, bad)
    assert ours == pytest.approx(100)
    assert theirs < 60
    assert p < 0.005


def test_any_reference_of_a_sentence_counts():
    good = rows(["v w x y z"] * 5, "a b c d e", "v w x y z")
    assert compare(good, good)[0] == pytest.approx(100)


def test_a_difference_in_a_single_sentence_is_inconclusive():
    ours = rows(["a b c d e"] * 40)
    theirs = rows(["a b c d e"] * 39 + ["x y z"])
    assert compare(ours, theirs)[2] == 1.0


def test_both_scores_equal_sacrebleu_and_p_is_deterministic():
    translations = np.random.default_rng(1).choice(["a b c d e", "a b c x e", "z b c"], size=(2, 60))
    references = ("a b c d e", "z b c d")
    ours, theirs = (
        [Translation(str(i), references, text, False) for i, text in enumerate(side)] for side in translations
    )
    first, second, p = compare(ours, theirs)
    scorer = BLEU(tokenize="none", force=True)
    streams = [["a b c d e"] * 60, ["z b c d"] * 60]
    assert first == pytest.approx(scorer.corpus_score(list(translations[0]), streams).score)
    assert second == pytest.approx(scorer.corpus_score(list(translations[1]), streams).score)
    assert compare(ours, theirs) == (first, second, p)
    assert 0.05 < p < 1


@pytest.mark.slow
def test_equal_models_differ_significantly_in_at_most_five_per_cent(monkeypatch):
    monkeypatch.setattr(sentences, "TRIALS", 199)
    generator = np.random.default_rng(5)
    found = 0
    for _ in range(60):
        translations = generator.choice(["a b c d e", "a b x d e"], size=(2, 30))
        found += compare(rows(translations[0]), rows(translations[1]))[2] <= 0.05
    assert found <= 8


def test_a_variant_is_represented_by_its_median_seed(made, tmp_path):
    score = {1: 0.9, 2: 0.5, 3: 0.7, 4: 0.6}
    study = made.Study(
        axes={"positional": ["sinusoidal"]}, seeds=(1, 2, 3, 4), maps=False, score=lambda axes, seed: score[seed]
    )
    frames = load_frames(made.write_study(tmp_path, study))
    assert median_seed(frames, "sinusoidal", "test/exact_match") == 4


@pytest.mark.slow
def test_variants_are_compared_with_the_baselines_median_seed(quickstart):
    analysis = Analysis(load_frames(quickstart))
    found = analysis.sentence_tests
    assert [test.slug for test in found] == [slug for slug in analysis.ranked if slug != analysis.frames.baseline]
    for test in found:
        assert test.baseline_seed == median_seed(analysis.frames, analysis.frames.baseline, analysis.metric)
    worst = next(test for test in found if test.slug == "none-split-heads-causal")
    assert worst.p < 0.01
    assert worst.bleu < worst.baseline_bleu


@pytest.mark.parametrize("references", [("a ||| b", "c"), ("|||",), ("x\\y", "\\p", "z"), ("plain",)])
def test_references_with_the_separator_are_split_as_joined(references):
    assert split_references(joined_references(references)) == references


def test_a_table_of_translations_is_read_as_written(quickstart):
    run = next(quickstart.glob("rotary-split-heads-causal-s1-*"))
    found = read_translations(run)
    assert len(found) == 250
    assert found[0].source == "the black cat does not eat it"
    assert found[0].exact == (found[0].hypothesis in found[0].references)


def test_a_run_without_translations_has_none(tmp_path):
    assert read_translations(tmp_path) == []


def test_other_test_sentences_are_found_if_the_first_seed_has_no_translations(made, tmp_path):
    study = made.Study(
        axes={"data.split": ["grouped", "row"]},
        config=lambda axes: {"data": {"split": axes["data.split"]}},
        states={("row", 1): "FAILED"},
        seeds=(1, 2, 3, 4),
        maps=False,
    )
    folder = made.write_study(tmp_path, study)
    assert other_test_sentences(Analysis(load_frames(folder), allow_partial=True)) == []
    for file in folder.glob("row-*/translations.tsv"):
        file.write_text(file.read_text().replace("the black cat", "the white cat"))
        made.record_checksums(file.parent)
    assert other_test_sentences(Analysis(load_frames(folder), allow_partial=True)) == ["row"]
