"""Sequences with labels: from the pairs of a dataset to labels, losses, scores and saved answers."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from headtohead.config.builder import resolve
from headtohead.data import prepare, prepare_corpus
from headtohead.data.metrics import task_metrics
from headtohead.data.store import PreparedStore
from headtohead.data.vocabulary import IGNORE_INDEX
from headtohead.errors import HeadToHeadError
from headtohead.execution.loaded import LoadedRun
from headtohead.planning.compatibility import find_incompatibility
from headtohead.planning.lengths import choose_probes
from headtohead.planning.pitfalls import find_pitfalls
from headtohead.plugins.dataset import Corpus, Pair
from headtohead.schema.run_config import DataConfig, VocabularyConfig
from headtohead.testing.dataset_invariants import DatasetSubject, labels_belong_to_words
from headtohead.training.evaluate import teacher_forced
from headtohead.training.loop import StackTraining, split_tensors
from headtohead.training.reference_points import reference_scores
from headtohead.training.results import score_splits

SETTINGS = {
    "source_boundaries": "none",
    "target_boundaries": "eos",
    "vocabulary": VocabularyConfig(shared=True),
}
CPU = torch.device("cpu")


def corpus_of(rows=40):
    """Return sequences of letters and a number, whose second and last words have the first word as label."""
    pairs = []
    for row in range(rows):
        words = [chr(97 + (7 * row + 3 * place) % 11) for place in range(3 + row % 4)] + list(
            f"{row:02}"
        )
        pairs.append(
            Pair(" ".join(words), f"{words[0]} {words[0]}", str(row), None, (1, len(words) - 1))
        )
    return Corpus(pairs, "MIT", "invented", ("letters", "first letters"), targets_join=False)


def prepared(corpus=None, **fields):
    config = DataConfig(
        dataset="invented", split="row", **{"normalise": "none"} | SETTINGS | fields
    )
    return prepare_corpus(corpus or corpus_of(), config)


def test_a_sequence_with_other_labelled_words_leaks():
    rows = [
        Pair(f"a b {n}", "a", str(n), part, (2,)) for part in ("train", "valid") for n in range(9)
    ]
    rows += [Pair(f"a b {n}", "a", str(n), "test", (1,)) for n in range(9, 6, -1)]
    data = prepared(Corpus(rows, "MIT", "invented", ("a", "b")))
    assert data.record["leak"] == 2 / 3


@pytest.mark.parametrize("boundaries", ["eos", "sos-eos"])
def test_a_label_belongs_to_the_decoder_input_of_its_word(boundaries):
    data = prepared(target_boundaries=boundaries)
    words = data.target_vocabulary
    for split in data.splits.values():
        tensors = (
            split_tensors(config_of(), data, CPU)["train"]
            if split is data.splits["train"]
            else None
        )
        for row, (ids, labels) in enumerate(zip(split.target, split.labels, strict=True)):
            sequence = [words.label(token) for token in ids]
            inner = [word for word in sequence if word not in ("<sos>", "<eos>")]
            marked = split.source_text[row].split()
            assert [word.strip("[]") for word in marked] == inner
            assert [place for place, word in enumerate(marked) if word[0] == "["] == [
                1,
                len(inner) - 1,
            ]
            front = sequence.index(inner[0])
            wanted = {front + 1: inner[0], front + len(inner) - 1: inner[0]}
            assert {
                place: words.label(label) for place, label in enumerate(labels) if label >= 0
            } == wanted
            if tensors is not None:
                batch = tensors.batch(torch.tensor([[row]]), *tensors.times(torch.tensor([row])))
                assert (
                    batch.decoder_input_ids[0, 0].tolist()
                    == ids[:-1].tolist()
                    == batch.source[0, 0].tolist()
                )
                assert batch.labels[0, 0].tolist() == labels[:-1].tolist()
                assert batch.num_labels.tolist() == [[2]]
                assert int(batch.target_lengths[0, 0]) == len(ids) - 1
    assert data.record["labels"] == {part: 2 * len(split) for part, split in data.splits.items()}
    assert data.record["bag_of_words_upper_bound"] is None
    assert data.record["vocabulary_upper_bound"] == 1


def test_the_cache_returns_the_labels(tmp_path):
    data, store = prepared(), PreparedStore(tmp_path, ["identity"])
    store.save("key", data)
    loaded = store.load("key")
    for part, split in data.splits.items():
        for saved, labels in zip(loaded.splits[part].labels, split.labels, strict=True):
            np.testing.assert_array_equal(saved, labels)
    assert loaded.data_hash == data.data_hash


def test_answers_to_other_labelled_words_of_a_sequence_are_no_references():
    pairs = [
        Pair(f"a b {row} c", str(place), f"{row}{place}", None, (place,))
        for row in range(40)
        for place in (0, 1)
    ]
    config = DataConfig(dataset="invented", split="row", **{"normalise": "none"} | SETTINGS)
    corpus = Corpus(pairs, "MIT", "invented", ("words", "places"), targets_join=False)
    test = prepare_corpus(corpus, config).splits["test"]
    assert test.references == [(target,) for target in test.target_text]


def test_other_labelled_words_are_other_data():
    corpus = corpus_of()
    pairs = [replace(pair, labelled=(0, pair.labelled[1])) for pair in corpus.pairs]
    other = Corpus(pairs, "MIT", "invented", ("letters", "first letters"), targets_join=False)
    assert other.data_hash != corpus.data_hash
    config = DataConfig(dataset="invented", split="row", normalise="none", **SETTINGS)
    first, second = (prepare_corpus(own, config).data_hash for own in (corpus, other))
    assert first != second


@pytest.mark.parametrize(
    ("fields", "remedy"),
    [
        ({"tokens": "subword"}, "tokens: word"),
        ({"normalise": "unicode"}, "normalise: none"),
        (
            {"vocabulary": VocabularyConfig(shared=True, unknown="drop")},
            "vocabulary.unknown: token",
        ),
        ({"source_boundaries": "eos"}, "source_boundaries: none"),
        ({"target_boundaries": "none"}, "target_boundaries: eos"),
        ({"truncate_tokens": 4}, "truncate_tokens: null"),
    ],
)
def test_settings_that_move_words_are_refused_in_one_line(fields, remedy):
    with pytest.raises(HeadToHeadError) as error:
        prepared(**fields)
    assert (
        str(error.value)
        == f"dataset 'invented' has labels of single words of a sequence; set data.{remedy}"
    )


def test_pairs_with_and_without_labels_are_refused():
    pairs = [*corpus_of().pairs, Pair("a b", "b a", "other")]
    mixed = Corpus(pairs, "MIT", "invented", ("letters", "letters"))
    with pytest.raises(HeadToHeadError, match="pairs with and without labelled words"):
        prepare_corpus(mixed, DataConfig(dataset="invented", split="row", **SETTINGS))
    assert (
        labels_belong_to_words(DatasetSubject("mixed", None, None, {"row": (mixed, mixed)})).state
        == "violated"
    )


@pytest.mark.parametrize("labelled", [(1,), (2, 1), (1, 1), (1, 9), (-1, 1), (0, 1, 2)])
def test_labels_that_belong_to_no_word_are_found(labelled):
    good = Corpus([Pair("a b c", "x y", "1", None, (1, 2))], "MIT", "invented", ("words", "labels"))
    bad = Corpus(
        [replace(good.pairs[0], labelled=labelled)], "MIT", "invented", ("words", "labels")
    )
    with pytest.raises(
        HeadToHeadError, match=r"a pair has 2 labels for the words \(.*; give ascending indices"
    ):
        prepare_corpus(
            bad, DataConfig(dataset="invented", split="row", normalise="none", **SETTINGS)
        )
    states = [
        labels_belong_to_words(DatasetSubject("x", None, None, {"row": (own, own)})).state
        for own in (good, bad)
    ]
    assert states == ["holds", "violated"]


def config_of(dataset=None, **sections):
    raw = {
        "data": {"dataset": "mqar", "size": 200, "alphabet": 12, "levels": ["16x2", "24x3"]}
        | (dataset or {}),
        "model": {"d_model": 16, "heads": 2, "layers": 1, "d_ff": 16, "dropout": 0.0},
        "train": {
            "steps": 3,
            "batch_size": 8,
            "lr": 0.01,
            "precision": "float64",
            "checkpoint_seconds": 1e9,
        },
    }
    return resolve({**raw, **sections})


def answers_by_loop(model, member, split):
    """Return the most probable token at each labelled position, with a pass of the model per sequence."""
    found = []
    for ids, labels in zip(split.target, split.labels, strict=True):
        sequence = torch.tensor(ids[:-1].astype(np.int64)).expand(model.members, 1, -1)
        lengths = torch.full((model.members, 1), sequence.shape[-1])
        with torch.no_grad():
            logits = model(sequence[..., :0], lengths * 0, sequence, lengths)[member, 0]
        found.append(
            [
                int(logits[place].argmax())
                for place in range(len(logits))
                if labels[place] != IGNORE_INDEX
            ]
        )
    return found


def test_scores_are_those_of_the_labelled_positions(tmp_path):
    config = config_of()
    data = prepare(config.data, tmp_path)
    stack = StackTraining(config, [1, 2], data, CPU)
    stack.run()
    split = data.splits["test"]
    scored = score_splits(stack, data, 4)
    for member in (0, 1):
        record, saved, _ = scored.results(member)
        answers = answers_by_loop(stack.model, member, split)
        labels = [[label for label in own if label >= 0] for own in split.labels]
        hits = sum(
            a == b
            for own, wanted in zip(answers, labels, strict=True)
            for a, b in zip(own, wanted, strict=True)
        )
        exact = sum(own == wanted for own, wanted in zip(answers, labels, strict=True))
        assert record.metrics["test/token_accuracy"] == pytest.approx(hits / sum(map(len, labels)))
        assert record.metrics["test/exact_match"] == exact / len(split)
        assert list(saved.hypotheses) == [data.decode(own) for own in answers]
        assert saved.sources == tuple(split.source_text)
        assert all("[" in source for source in saved.sources)
        by_length = {bucket["bucket"]: bucket for bucket in record.buckets}
        assert {name: bucket["n"] for name, bucket in by_length.items()} == {
            "15-20": sum(len(ids) == 17 for ids in split.target),
            "21-30": sum(len(ids) == 25 for ids in split.target),
        }
        assert sum(bucket["counts"]["token_accuracy"][1] for bucket in record.buckets) == sum(
            map(len, labels)
        )
    forced = teacher_forced(
        stack.model, stack.splits["test"], stack.splits["test"].padded_batches(3)
    )
    assert forced.num_tokens.tolist() == [len(own) for own in labels]
    points = reference_scores(data, None, task_metrics("mqar"))
    assert points.nearest_neighbour
    assert points.source_copy is None  # the source is a sequence, not an answer


def test_a_microbatched_step_equals_a_whole_step(tmp_path):
    config = config_of()
    data = prepare(config.data, tmp_path)
    stacks = [StackTraining(config, [1, 2], data, CPU) for _ in range(2)]
    stacks[1].num_microbatches = 3
    spec = next(stacks[0]._batches())
    assert spec.shape.num_target_tokens < spec.rows.shape[1] * spec.shape.target_time // 2
    losses = [stack.gradients(*spec) for stack in stacks]
    torch.testing.assert_close(losses[0], losses[1], rtol=0, atol=1e-12)
    for one, other in zip(stacks[0].parameters, stacks[1].parameters, strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=0, atol=1e-12)


def test_what_cannot_read_sequences_is_excluded_with_the_reason(tmp_path):
    data = prepare(config_of().data, tmp_path)
    longest = data.record["longest"]
    assert find_incompatibility(config_of(), longest) is None
    for sections, reason in [
        ({"model": {"architecture": "encoder-decoder"}}, "dataset 'mqar' has no sources to encode"),
        ({"evaluate": {"decode": "greedy"}}, "dataset 'mqar' has no sources to translate"),
        ({"evaluate": {"decode": "non-autoregressive"}}, "requires an encoder"),
    ]:
        assert reason in find_incompatibility(config_of(**sections), longest)
    assert find_pitfalls(config_of(), 0.0) == ()
    probe = choose_probes(None, data)[0]
    assert probe.source == ""
    assert probe.target in {
        words.replace("[", "").replace("]", "") for words in data.splits["test"].source_text
    }


def test_generate_prints_the_labels_of_the_words_in_brackets_or_of_the_last_word(tmp_path):
    config = config_of()
    data = prepare(config.data, tmp_path)
    stack = StackTraining(config, [1], data, CPU)
    stack.run()
    split, loaded = data.splits["test"], LoadedRun(tmp_path, config, stack.model.eval(), data, None)
    answers, decode = answers_by_loop(stack.model, 0, split), data.decode
    wanted = [decode(own) for own in answers]
    assert [loaded.label(text) for text in split.source_text] == wanted
    assert len({*wanted}) > 1
    for text, own in zip(split.source_text, answers, strict=True):
        until_first = text[: text.index("]")].replace("[", "")
        assert loaded.label(until_first) == decode(own[:1])
        assert loaded.label(f"{until_first} []") == loaded.label(f"{until_first} [?]")
