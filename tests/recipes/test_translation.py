"""Translations of imported checkpoints, compared with the notebooks token by token."""

from collections import Counter

import pytest
import torch

from headtohead_notebooks.notebook_pairs import EN_FR_SOURCE_WORDS, EN_FR_TARGET_WORDS

SPECIALS = ("<pad>", "<sos>", "<eos>")
SOURCE, TARGET = EN_FR_SOURCE_WORDS.split(), EN_FR_TARGET_WORDS.split()

EXPORT = (
    ("1276", "Let's try something.", "2481", "¡Intentemos algo!"),
    ("1277", "I have to go to sleep.", "2482", "Tengo que irme a dormir."),
    (
        "1280",
        "Today is June 18th and it is Muiriel's birthday!",
        "2485",
        "¡Hoy es 18 de junio y es el cumpleaños de Muiriel!",
    ),
    (
        "1280",
        "Today is June 18th and it is Muiriel's birthday!",
        "1130137",
        "¡Hoy es el 18 de junio y es el cumpleaños de Muiriel!",
    ),
    ("1283", 'The password is "Muiriel".', "2488", 'La contraseña es "Muiriel".'),
    ("77", "???", "78", "¿Qué?"),
    ("1284", "I will be back soon.", "2489", "Volveré pronto."),
)


@pytest.fixture
def export(tmp_path):
    """A "Sentence pairs" export: byte order mark, CRLF, four columns."""
    path = tmp_path / "eng-spa.tsv"
    text = "".join("\t".join(row) + "\r\n" for row in EXPORT)
    path.write_bytes(("\ufeff" + text + "\r\n").encode())
    return path


def spread(model, projection, seed, often=(0,)):
    """Initialise a model whose most likely word varies from step to step; the ids in ``often`` are frequent."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(0.0, 0.6)
            elif "norm" not in name:
                parameter.zero_()
        projection.bias[list(often)] += 4.0
    return model.eval()


@pytest.fixture
def compare(notebooks, monkeypatch):
    """Compare ids and words with the notebook's decoding; count what happens, and whether masked padding matters."""
    attention_mask, seen = notebooks.attention_mask, Counter()

    def causal(keys, queries=None):
        return attention_mask(keys if queries is None else torch.ones_like(keys), queries)

    def compare(loaded, model, sentence, source, words):
        arguments = model, source, words.index("<sos>"), words.index("<eos>"), 9
        expected = notebooks.greedy(*arguments)
        assert loaded.generate(source) == expected
        known = [words[index] for index in expected if index < len(words)]
        assert loaded.translate([sentence]) == [
            " ".join(word for word in known if word not in SPECIALS)
        ]
        with monkeypatch.context() as patch:
            patch.setattr(notebooks, "attention_mask", causal)
            seen["padding masked"] += expected != notebooks.greedy(*arguments)
        seen["padding"] += 0 in expected
        seen["ended"] += len(expected) < 9
        return expected

    yield compare
    assert min(seen.values()) > 0, seen


@pytest.mark.slow
@pytest.mark.parametrize("style", ["IndependentHeads", "SplitHeads"])
def test_notebook_1_translates_token_for_token(style, notebooks, imported, compare):
    found = []
    for seed in range(8):
        heads = getattr(notebooks, style)
        model = notebooks.Scratch(words=(40, 60), heads=2, length=9, style=heads)
        spread(model, model.fc, seed, (0, 39))
        loaded = imported("scratch-en-fr", model, "model.heads=2")
        for sentence in ("I love you", "cat is small", "they run", "hello"):
            source = [SOURCE.index(word) for word in sentence.split() if word in SOURCE] + [39]
            found.append(compare(loaded, model, sentence, source, TARGET))
    assert any(len(ids) == 9 for ids in found)
    assert any(index > 39 for ids in found for index in ids)  # ids without a word


def test_notebook_1_ends_after_as_many_words_as_its_table_has_rows(notebooks, imported):
    model = notebooks.Scratch(length=7)
    torch.manual_seed(0)
    with torch.no_grad():
        model.fc.bias[5] += 100.0
    assert imported("scratch-en-fr", model).translate(["hello"]) == [" ".join(["bon"] * 7)]


def plain_vocabulary(sentences):
    """Return the words by id as notebook 3 builds them: by frequency, then by their first occurrence."""
    return [
        "<pad>",
        "<unk>",
        *(word for word, _ in Counter(" ".join(sentences).split()).most_common()),
    ]


def plain_sentence(text):
    text = text.lower()
    for accented, plain in zip("áéíóú", "aeiou", strict=True):
        text = text.replace(accented, plain)
    letters = "".join(c if "a" <= c <= "z" else " " for c in text)
    return f"<sos> {' '.join(letters.split())} <eos>"


@pytest.mark.slow
def test_notebook_3_translates_token_for_token_with_its_own_vocabularies(
    notebooks, imported, export, compare
):
    english = plain_vocabulary([plain_sentence(row[1]) for row in EXPORT])
    spanish = plain_vocabulary([plain_sentence(row[3]) for row in EXPORT])
    for seed in range(6):
        model = notebooks.Tatoeba(words=(len(english), len(spanish)), layers=1)
        spread(model, model.output_layer, seed, (0, spanish.index("<eos>")))
        loaded = imported("tatoeba-en-es", model, "evaluate.max_length=9", data=export)
        assert loaded.data.source_vocabulary.words == english
        assert loaded.data.target_vocabulary.words == spanish
        for sentence in ("I will be back, soon!", "Muiriel is a robot", "Let's go to sleep"):
            source = [
                english.index(word) if word in english else 1
                for word in plain_sentence(sentence).split()
            ]
            assert loaded.data.tokenise(sentence, "source") == source
            compare(loaded, model, sentence, source, spanish)


@pytest.mark.slow
def test_notebook_4_translates_in_one_pass_on_zeros(notebooks, imported):
    words = ["<pad>", "J'", "adore", "l'IA", "."]
    seen = Counter()
    for seed in range(6):
        model = notebooks.Slides(width=16, heads=8, inner=12)
        spread(model, model.fc_out, seed)
        loaded = imported("slides-en-fr", model)
        for sentence, source in (("I love AI .", [1, 2, 3, 4]), ("AI love", [3, 2])):
            with torch.no_grad():
                logits = model(torch.tensor([source]), torch.zeros(1, len(source)).long())
            best = logits[0].argmax(-1).tolist()
            expected = [index for index in best if index != 0]
            assert loaded.generate(source) == expected
            assert loaded.translate([sentence]) == [" ".join(words[index] for index in expected)]
            seen.update({"dropped": 0 in best, "written": bool(expected)})
    assert min(seen.values()) > 0, seen
