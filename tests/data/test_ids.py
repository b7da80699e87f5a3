"""Vocabularies, ids, boundary tokens and unknown words: naive counts, and the printed output of the notebooks."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headtohead.config.builder import resolve
from headtohead.data import (
    EOS,
    PAD,
    SOS,
    SPECIALS,
    UNK,
    PreparedData,
    Vocabulary,
    prepare,
    prepare_corpus,
)
from headtohead.data.tokeniser import Tokeniser, Unit
from headtohead.data.vocabularies import count_words, read_tokenizer
from headtohead.errors import HeadToHeadError, UndefinedError
from headtohead.plugins.dataset import Corpus
from headtohead.schema.run_config import DataConfig, VocabularyConfig
from made import refused
from made.data_section import data_config
from made.texts import random_texts

# What notebook 1 prints for its shuffled batch: every source row, and the target rows before the
# output is cut off.
PRINTED_SOURCES = """
    11 34 39 0 0   30 21 39 0 0   10 21 39 0 0   14 17 7 39 0   1 2 3 39 0     10 35 23 39 0
    14 37 19 39 0  13 16 6 39 0   12 35 24 39 0  11 36 23 39 0  31 22 39 0 0   4 5 39 0 0
    12 20 39 0 0   25 32 39 0 0   26 33 39 0 0   1 28 39 0 0    13 15 39 0 0   6 8 39 0 0
    6 7 39 0 0     9 22 39 0 0
"""
PRINTED_TARGETS = """
    38 10 28 39 0   38 29 36 20 39  38 9 36 20 39   38 13 35 6 39   38 1 2 39 0  38 9 17 22 39
    38 13 37 18 39  38 12 15 5 39   38 11 17 23 39  38 10 16 22 39  38 30 36 21 39  38 3 4 39 0
"""


# The first ten rows of the file of notebook 3, and the notebook's printed output for them.
RAW = """\
1276\tLet's try something.\t2481\t¡Intentemos algo!
1277\tI have to go to sleep.\t2482\tTengo que irme a dormir.
1280\tToday is June 18th and it is Muiriel's birthday!\t2485\t¡Hoy es 18 de junio y es el cumpleaños de Muiriel!
1280\tToday is June 18th and it is Muiriel's birthday!\t1130137\t¡Hoy es el 18 de junio y es el cumpleaños de Muiriel!
1282\tMuiriel is 20 now.\t2487\tAhora, Muiriel tiene 20 años.
1282\tMuiriel is 20 now.\t1130133\tMuiriel tiene 20 años ahora.
1283\tThe password is "Muiriel".\t2488\tLa contraseña es "Muiriel".
1284\tI will be back soon.\t2489\tVolveré pronto.
1284\tI will be back soon.\t586853\tVuelvo en seguida.
1284\tI will be back soon.\t1031885\tYo regresaré pronto."""
ENGLISH = """\
<sos> let s try something <eos>
<sos> i have to go to sleep <eos>
<sos> today is june th and it is muiriel s birthday <eos>
<sos> today is june th and it is muiriel s birthday <eos>
<sos> muiriel is now <eos>
<sos> muiriel is now <eos>
<sos> the password is muiriel <eos>
<sos> i will be back soon <eos>
<sos> i will be back soon <eos>
<sos> i will be back soon <eos>""".splitlines()
SPANISH = """\
<sos> intentemos algo <eos>
<sos> tengo que irme a dormir <eos>
<sos> hoy es de junio y es el cumplea os de muiriel <eos>
<sos> hoy es el de junio y es el cumplea os de muiriel <eos>
<sos> ahora muiriel tiene a os <eos>
<sos> muiriel tiene a os ahora <eos>
<sos> la contrase a es muiriel <eos>
<sos> volvere pronto <eos>
<sos> vuelvo en seguida <eos>
<sos> yo regresare pronto <eos>""".splitlines()


def rows_of_five(text: str) -> list[tuple[int, ...]]:
    numbers = [int(number) for number in text.split()]
    return [tuple(numbers[start : start + 5]) for start in range(0, len(numbers), 5)]


def padded(sequences: Sequence[np.ndarray], width: int) -> list[tuple[int, ...]]:
    return [tuple(ids.tolist()) + (0,) * (width - len(ids)) for ids in sequences]


def spelled(ids: np.ndarray, vocabulary: Vocabulary) -> str:
    return " ".join(vocabulary.words[index] for index in ids.tolist())


def by_frequency(sentences: Sequence[str], first: int) -> dict[str, int]:
    """Number the words one after another: the most frequent remaining word, ties by first appearance."""
    words = [word for sentence in sentences for word in sentence.split()]
    remaining = list(dict.fromkeys(words))
    table: dict[str, int] = {}
    while remaining:
        best = remaining[0]
        for word in remaining:
            if words.count(word) > words.count(best):
                best = word
        table[best] = first + len(table)
        remaining.remove(best)
    return table


def tables(vocabulary: Vocabulary) -> dict[str, int]:
    return {word: index for index, word in enumerate(vocabulary.words)}


@pytest.fixture
def ready(tmp_path: Path) -> Callable[..., PreparedData]:
    """Prepare the data of a configuration, such as that of a recipe."""
    return lambda **raw: prepare(resolve({"train": {"steps": 1}, **raw}).data, tmp_path / "cache")


@pytest.fixture
def tatoeba(ready: Callable[..., PreparedData], tmp_path: Path) -> PreparedData:
    file = tmp_path / "eng-spa.tsv"
    file.write_bytes(b"\xef\xbb\xbf" + RAW.replace("\n", "\r\n").encode())
    return ready(recipe="tatoeba-en-es", data={"file": str(file)})


def test_notebook_1_has_the_printed_ids(ready: Callable[..., PreparedData]) -> None:
    train = ready(recipe="scratch-en-fr").splits["train"]
    longest = max(len(ids) for ids in (*train.source, *train.target))
    assert longest == 5
    assert sorted(padded(train.source, 5)) == sorted(rows_of_five(PRINTED_SOURCES))
    printed = rows_of_five(PRINTED_TARGETS)
    assert len(printed) == 12
    assert set(printed) <= set(padded(train.target, 5))
    # The printed rows are pairs: the n-th target belongs to the n-th source.
    pairs = list(zip(padded(train.source, 5), padded(train.target, 5), strict=True))
    for pair in zip(rows_of_five(PRINTED_SOURCES), printed, strict=False):
        assert pair in pairs


def test_notebook_2_numbers_words_from_1_by_frequency(ready: Callable[..., PreparedData]) -> None:
    data = ready(recipe="architecture-en-de")
    train = data.splits["train"]
    assert len(train) == 50
    for side, texts, sequences in (
        ("source", train.source_text, train.source),
        ("target", train.target_text, train.target),
    ):
        vocabulary = data.vocabulary(side)
        table = by_frequency(texts, 1)
        assert tables(vocabulary) == table | {"<pad>": 0}
        assert (vocabulary.unk, vocabulary.sos, vocabulary.eos) == (None, None, None)
        for text, ids in zip(texts, sequences, strict=True):
            assert ids.tolist() == [table[word] for word in text.split()]


def test_notebook_3_normalises_as_printed(tatoeba: PreparedData) -> None:
    train = tatoeba.splits["train"]
    english = [spelled(ids, tatoeba.source_vocabulary) for ids in train.source]
    spanish = [spelled(ids, tatoeba.target_vocabulary) for ids in train.target]
    assert english == ENGLISH
    assert spanish == SPANISH
    words = tatoeba.tokenisers["target"].tokens("¿Hola @ cómo estás? 123")
    assert " ".join(["<sos>", *words, "<eos>"]) == "<sos> hola como estas <eos>"


def test_notebook_3_numbers_words_and_boundary_tokens_from_2(tatoeba: PreparedData) -> None:
    for vocabulary, sentences in (
        (tatoeba.source_vocabulary, ENGLISH),
        (tatoeba.target_vocabulary, SPANISH),
    ):
        expected = by_frequency(sentences, 2) | {"<pad>": 0, "<unk>": 1}
        assert tables(vocabulary) == expected
        # In ten sentences no word is as frequent as the boundary tokens.
        assert (vocabulary.sos, vocabulary.eos) == (2, 3)
        assert (vocabulary.pad, vocabulary.unk) == (0, 1)
    assert tatoeba.tokenise("Let's fly!", "source") == [
        2,
        *(tables(tatoeba.source_vocabulary)[word] for word in ("let", "s")),
        1,
        3,
    ]


def test_notebook_4_has_its_printed_tables(ready: Callable[..., PreparedData]) -> None:
    data = ready(recipe="slides-en-fr")
    assert data.splits["train"].source[0].tolist() == [1, 2, 3, 4]
    assert data.splits["train"].target[0].tolist() == [1, 2, 3, 4]
    assert tables(data.source_vocabulary) == {"<pad>": 0, "I": 1, "love": 2, "AI": 3, ".": 4}
    assert tables(data.target_vocabulary) == {"<pad>": 0, "J'": 1, "adore": 2, "l'IA": 3, ".": 4}
    with pytest.raises(HeadToHeadError, match=r"^the vocabulary has no word 'hate', and"):
        data.tokenise("I hate AI .", "source")


def test_notebook_5_has_positions_as_ids_and_no_padding(ready: Callable[..., PreparedData]) -> None:
    data = ready(recipe="by-hand-en-fr")
    assert tables(data.source_vocabulary) == {"this": 0, "is": 1, "a": 2, "fat": 3, "cat": 4}
    assert tables(data.target_vocabulary) == {
        "<sos>": 0,
        "c'est": 1,
        "un": 2,
        "chat": 3,
        "gros": 4,
        "<eos>": 5,
    }
    assert data.splits["train"].source[0].tolist() == [0, 1, 2, 3, 4]
    assert data.splits["train"].target[0].tolist() == [0, 1, 2, 3, 4, 5]
    assert (data.target_vocabulary.pad, data.target_vocabulary.sos) == (None, 0)
    assert data.decode([2, 4, 4, 1, 4, 5]) == "un gros gros c'est gros"


WORDS = st.lists(st.lists(st.sampled_from("abcdefg"), max_size=6), min_size=1, max_size=12)


@given(WORDS, st.booleans())
def test_frequency_ids_are_those_of_a_naive_count(
    sentences: list[list[str]], with_unk: bool
) -> None:
    bounded = [["<sos>", *words, "<eos>"] for words in sentences]
    vocabulary = count_words(
        bounded, VocabularyConfig(ids="frequency", unknown="token" if with_unk else "refuse")
    )
    front = {"<pad>": 0} | ({"<unk>": 1} if with_unk else {})
    assert (
        tables(vocabulary)
        == by_frequency([" ".join(words) for words in bounded], len(front)) | front
    )


@given(WORDS, st.integers(5, 9), st.integers(1, 3))
def test_limits_remove_the_rarest_words_and_no_boundary_token(
    sentences: list[list[str]], max_size: int, min_count: int
) -> None:
    bounded = [["<sos>", *words, "<eos>"] for words in sentences]
    counts = {word: sum(words.count(word) for words in sentences) for word in "abcdefg"}
    config = VocabularyConfig(ids="frequency", max_size=max_size, min_count=min_count)
    words = count_words(bounded, config).words
    assert {"<pad>", "<unk>", "<sos>", "<eos>"} <= set(words)
    plain = [word for word in words if word in counts]
    expected = sorted((n for n in counts.values() if n >= min_count), reverse=True)[: max_size - 4]
    assert [counts[word] for word in plain] == expected
    assert len(words) <= max_size


NAMES = st.lists(random_texts("abcé'ñ", min_size=1), min_size=1)


def test_words_are_ordered_by_frequency_then_alphabetically() -> None:
    vocabulary = count_words([["b", "z", "c"], ["c", "é", "a"], ["c", "b"]], VocabularyConfig())
    assert vocabulary.words == [*SPECIALS, "c", "b", "a", "z", "é"]
    assert (PAD, UNK, SOS, EOS) == (0, 1, 2, 3)


def test_special_tokens_in_a_text_are_ordinary_unknown_words() -> None:
    vocabulary = count_words([["a", "<eos>", "<pad>"]], VocabularyConfig())
    assert vocabulary.words == [*SPECIALS, "a"]
    assert vocabulary.encode(["<eos>", "a"]) == [UNK, 4]


@given(NAMES, NAMES)
def test_the_text_of_ids_has_no_boundaries(words: list[str], more: list[str]) -> None:
    vocabulary = count_words([words, more], VocabularyConfig())
    ids = [SOS, *vocabulary.encode(words), EOS, *vocabulary.encode(more), PAD]
    tokeniser = Tokeniser(Unit(), vocabulary)
    assert tokeniser.decode(ids) == " ".join([*words, *more])


@pytest.fixture
def four(make_corpus: Callable) -> Corpus:
    return make_corpus(("a b", "x"), ("c b a", "y z"), ("b", "z z z"), ("d a", "x z"))


def nothing_held_out(**fields: Any) -> DataConfig:
    return data_config(**({"split": "nothing-held-out", "normalise": "none"} | fields))


@pytest.mark.parametrize("ids", ["standard", "frequency"])
@pytest.mark.parametrize("source", ["none", "eos", "sos-eos"])
@pytest.mark.parametrize("target", ["none", "sos-eos"])
def test_boundary_tokens_are_those_of_the_configuration(
    four: Corpus, ids: str, source: str, target: str
) -> None:
    data = prepare_corpus(
        four,
        nothing_held_out(
            vocabulary={"ids": ids}, source_boundaries=source, target_boundaries=target
        ),
    )
    around = {"none": "{}", "eos": "{} <eos>", "sos-eos": "<sos> {} <eos>"}
    for split in data.splits.values():
        sides = (
            (split.source, split.source_text, source, "source"),
            (split.target, split.target_text, target, "target"),
        )
        for sequences, texts, boundaries, side in sides:
            for sequence, text in zip(sequences, texts, strict=True):
                vocabulary = data.vocabulary(side)
                assert spelled(sequence, vocabulary) == around[boundaries].format(text)
                assert data.tokenise(text, side) == sequence.tolist()
                assert data.decode(sequence.tolist(), side) == text
                assert vocabulary.count_words(sequence.tolist()) == len(text.split())
    if ids == "frequency" and source == "none":
        assert (data.source_vocabulary.sos, data.source_vocabulary.eos) == (None, None)


def test_truncation_keeps_the_first_tokens_boundary_tokens_included(four: Corpus) -> None:
    whole = prepare_corpus(four, nothing_held_out())
    data = prepare_corpus(four, nothing_held_out(truncate_tokens=3))
    for part, split in data.splits.items():
        for name in ("source", "target"):
            long, short = getattr(whole.splits[part], name), getattr(split, name)
            assert [ids.tolist() for ids in short] == [ids.tolist()[:3] for ids in long]
    assert data.record["longest"] == {"source": 3, "target": 3}
    assert data.tokenise("c b a", "source") == whole.tokenise("c b a", "source")[:3]
    assert data.source_vocabulary == whole.source_vocabulary


def test_unknown_words_become_a_token_are_dropped_or_are_refused(make_corpus: Callable) -> None:
    rows = [("a b", "x", "1", "train"), ("b c", "y", "2", "valid"), ("q a q", "x", "3", "test")]

    def data(unknown: str) -> PreparedData:
        config = nothing_held_out(split="grouped", vocabulary={"unknown": unknown})
        return prepare_corpus(make_corpus(*rows), config)

    assert data("token").splits["test"].source[0].tolist() == [1, 4, 1, 3]
    assert data("drop").splits["test"].source[0].tolist() == [4, 3]
    with pytest.raises(
        UndefinedError,
        match=r"^the vocabulary has no word '[cyq]', and data\.vocabulary\.unknown is r",
    ):
        data("refuse")


def test_a_pair_without_remaining_words_is_dropped_and_counted(make_corpus: Callable) -> None:
    rows = [
        ("a", "x", "1", "train"),
        ("b", "y", "2", "valid"),
        ("a", "x", "3", "valid"),
        ("a q", "x", "4", "test"),
    ]
    config = nothing_held_out(
        split="grouped",
        vocabulary={"unknown": "drop"},
        source_boundaries="none",
        target_boundaries="none",
    )
    data = prepare_corpus(make_corpus(*rows), config)
    assert data.splits["valid"].source_text == ["a"]
    assert data.record["dropped"]["no_known_word"] == 1
    assert "1 no-known-word pairs were dropped" in data.record["notes"]
    assert data.splits["test"].source[0].tolist() == [4]
    with pytest.raises(
        HeadToHeadError,
        match=r"^no pair of valid has a word of the vocabularies \(1 pairs dropped\); use",
    ):
        prepare_corpus(make_corpus(*rows[:2], rows[3]), config)


def test_with_nothing_held_out_all_splits_have_the_same_sentences(
    ready: Callable[..., PreparedData],
) -> None:
    toy = {"dataset": "toy-grammar", "size": 300}
    open_toy = toy | {"split": "nothing-held-out"}
    whole, held_out = ready(data=open_toy), ready(data=toy)
    assert whole.record["counts"] == {"train": 300, "valid": 300, "test": 300}
    assert sum(held_out.record["counts"].values()) == 300
    sources = [split.source_text for split in whole.splits.values()]
    assert sources[0] == sources[1] == sources[2]
    assert set(sources[0]) == {t for split in held_out.splits.values() for t in split.source_text}
    assert (whole.record["leak"], whole.record["leaky"]) == (1.0, True)
    assert whole.record["notes"][-1] == (
        "nothing is held out: the pairs of valid and test are also in train, so scores measure memorisation"
    )
    assert ready(data=open_toy | {"limit": 9}).record["counts"]["test"] == 9
    some = ready(data=open_toy | {"valid": 20, "test": 400})
    assert some.record["counts"] == {"train": 300, "valid": 20, "test": 300}
    assert some.splits["train"].source_text == sources[0]
    assert set(some.splits["valid"].source_text) < set(sources[0])


@pytest.mark.parametrize(
    ("recipe", "changes", "message"),
    [
        (None, {"vocabulary.ids": "printed"}, "^dataset 'toy-grammar' has no printed vocabularies"),
        ("scratch-en-fr", {"vocabulary.unknown": "token"}, "^the printed vocabulary has no <unk>"),
        (
            "scratch-en-fr",
            {"vocabulary.shared": True},
            r"ids: printed does not count .* data\.vocabulary\.shared$",
        ),
        ("scratch-en-fr", {"vocabulary.max_size": 9}, r"leave out data\.vocabulary\.max_size$"),
        ("by-hand-en-fr", {"vocabulary.min_count": 2}, r"leave out data\.vocabulary\.min_count$"),
        (
            "slides-en-fr",
            {"source_boundaries": "eos"},
            "^the vocabulary has no boundary token <eos>",
        ),
        (
            "slides-en-fr",
            {"target_boundaries": "sos-eos"},
            "^the vocabulary has no boundary token <eos>",
        ),
    ],
)
def test_incompatible_vocabulary_fields_are_refused(
    ready: Callable[..., PreparedData], recipe: str | None, changes: dict[str, Any], message: str
) -> None:
    toy = {"data": {"dataset": "toy-grammar", "size": 200, "vocabulary": {"unknown": "drop"}}}
    changed = {f"data.{name}": value for name, value in changes.items()}
    with pytest.raises(UndefinedError, match=message):
        ready(**({"recipe": recipe} if recipe else toy), **changed)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            '{"<pad>": 0, "<unk>": 1, "<s>": 2, "</s>": 3, "a": 4, "b": 4}',
            "has two tokens for the id 4, 'a' and 'b'; keep",
        ),
        (
            '{"<pad>": 0, "<unk>": 1, "<s>": 2, "</s>": 3, "a": 4, "a": 5}',
            'tokenizers (the name "a" occurs twice)',
        ),
    ],
)
def test_a_token_of_a_tokenizer_file_has_one_id(table: str, message: str, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    model = f'{{"type": "WordLevel", "vocab": {table}, "unk_token": "<unk>"}}'
    empty = ", ".join(
        f'"{part}": null'
        for part in (
            "truncation",
            "padding",
            "normalizer",
            "pre_tokenizer",
            "post_processor",
            "decoder",
        )
    )
    (tmp_path / "tokenizer.json").write_text(
        f'{{"version": "1.0", {empty}, "added_tokens": [], "model": {model}}}'
    )
    config = data_config(vocabulary={"file": str(tmp_path / "tokenizer.json")})
    assert message in refused(read_tokenizer, config)
