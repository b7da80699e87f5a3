"""Translations of imported checkpoints, compared with the notebooks token by token."""

from collections import Counter

import pytest
import torch

import headtohead
from headtohead import HeadToHeadError
from headtohead_notebooks import import_checkpoint

ENGLISH = """<pad> I love you hello world good morning night cat dog he she we they go eat run walk
happy sad big small fast slow boy girl play read write car house plays reads writes walks runs are
<sos> <eos>"""
FRENCH = """<pad> Je t’aime bonjour monde bon matin nuit chat chien il elle nous ils va mange court
marche heureux triste grand petit rapide lent garçon fille joue lit écrit voiture maison jouent
lisent écrivent marchent courent est sont <sos> <eos>"""
SOURCE, TARGET = ENGLISH.split(), FRENCH.split()
"""The words of notebook 1 by their ids, 0 to 39."""

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
def imported(saved, tmp_path):
    def run(recipe, model, *overrides, data=None):
        path = import_checkpoint(
            saved(model), recipe=recipe, name="run", overrides=overrides, data=data, runs=tmp_path / "runs", force=True
        )
        return headtohead.load(path)

    return run


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
def unmasked(notebooks, monkeypatch):
    """Decode as a notebook would if its decoder attended to padding in its own output."""
    attention_mask = notebooks.attention_mask

    def causal(keys, queries=None):
        return attention_mask(keys if queries is None else torch.ones_like(keys), queries)

    def decode(*arguments):
        with monkeypatch.context() as patch:
            patch.setattr(notebooks, "attention_mask", causal)
            return notebooks.greedy(*arguments)

    return decode


@pytest.mark.slow
@pytest.mark.parametrize("style", ["IndependentHeads", pytest.param("SplitHeads", marks=pytest.mark.slow)])
def test_notebook_1_translates_token_for_token(style, notebooks, imported, unmasked):
    seen = Counter()
    for seed in range(8):
        heads = getattr(notebooks, style)
        model = notebooks.Scratch(words=(40, 60), heads=2, length=9, style=heads)
        spread(model, model.fc, seed, (0, 39))
        loaded = imported("scratch-en-fr", model, "model.heads=2")
        for sentence in ("I love you", "cat is small", "they run", "hello"):
            source = [SOURCE.index(word) for word in sentence.split() if word in SOURCE] + [39]
            expected = notebooks.greedy(model, source, 38, 39, 9)
            assert loaded.generate(source) == expected
            words = [TARGET[index] for index in expected if index < 40 and index not in (0, 38, 39)]
            assert loaded.translate([sentence]) == [" ".join(words)]
            seen["padding"] += 0 in expected
            seen["padding masked"] += expected != unmasked(model, source, 38, 39, 9)
            seen["ended"] += len(expected) < 9
            seen["full"] += len(expected) == 9
            seen["wordless"] += any(index > 39 for index in expected)
    assert min(seen.values()) > 0, seen


def test_notebook_1_ends_after_as_many_words_as_its_table_has_rows(notebooks, imported):
    model = notebooks.Scratch(length=7)
    torch.manual_seed(0)
    with torch.no_grad():
        model.fc.bias[5] += 100.0
    assert imported("scratch-en-fr", model).translate(["hello"]) == [" ".join(["bon"] * 7)]


def plain_vocabulary(sentences):
    """Return the words by id as notebook 3 builds them, with an explicit sort."""
    counts = {}
    for sentence in sentences:
        for word in sentence.split():
            counts[word] = counts.get(word, 0) + 1
    order = list(counts)
    ranked = sorted(order, key=lambda word: (-counts[word], order.index(word)))
    return ["<pad>", "<unk>", *ranked]


def plain_sentence(text):
    text = text.lower()
    for accented, plain in zip("áéíóú", "aeiou", strict=True):
        text = text.replace(accented, plain)
    letters = "".join(c if "a" <= c <= "z" else " " for c in text)
    return f"<sos> {' '.join(letters.split())} <eos>"


@pytest.mark.slow
def test_notebook_3_translates_token_for_token_with_its_own_vocabularies(notebooks, imported, export, unmasked):
    english = plain_vocabulary([plain_sentence(row[1]) for row in EXPORT])
    spanish = plain_vocabulary([plain_sentence(row[3]) for row in EXPORT])
    sentences = ["I will be back, soon!", "Muiriel is a robot", "Let's go to sleep"]
    seen = Counter()
    for seed in range(6):
        model = notebooks.Tatoeba(words=(len(english), len(spanish)), layers=1)
        spread(model, model.output_layer, seed, (0, spanish.index("<eos>")))
        loaded = imported("tatoeba-en-es", model, "evaluate.max_length=9", data=export)
        assert loaded.data.source_vocabulary.words == english
        assert loaded.data.target_vocabulary.words == spanish
        translations = loaded.translate(sentences)
        for sentence, translation in zip(sentences, translations, strict=True):
            words = plain_sentence(sentence).split()
            source = [english.index(word) if word in english else 1 for word in words]
            ends = spanish.index("<sos>"), spanish.index("<eos>")
            expected = notebooks.greedy(model, source, *ends, 9)
            assert loaded.data.tokenise(sentence, "source") == source
            assert loaded.generate(source) == expected
            specials = ("<pad>", "<sos>", "<eos>")
            words = [spanish[index] for index in expected if spanish[index] not in specials]
            assert translation == " ".join(words)
            seen["padding"] += 0 in expected
            seen["padding masked"] += expected != unmasked(model, source, *ends, 9)
            seen["ended"] += len(expected) < 9
    assert min(seen.values()) > 0, seen


def test_notebook_3_stops_after_128_tokens_without_eos(notebooks, imported, export):
    words = (
        len(plain_vocabulary([plain_sentence(row[1]) for row in EXPORT])),
        len(plain_vocabulary([plain_sentence(row[3]) for row in EXPORT])),
    )
    model = notebooks.Tatoeba(words=words, layers=1)
    with torch.no_grad():
        model.output_layer.bias[7] += 100.0
    loaded = imported("tatoeba-en-es", model, data=export)
    assert len(loaded.translate(["I"])[0].split()) == 128


@pytest.mark.parametrize("columns", [(1, 3), (1, 3, 2)])
def test_files_without_ids_have_the_sentences_first(columns, notebooks, imported, tmp_path, export):
    file = tmp_path / "pairs.tsv"
    rows = ["\t".join(row[column] for column in columns) for row in EXPORT]
    file.write_text("\n".join(rows), encoding="utf-8")
    english = plain_vocabulary([plain_sentence(row[1]) for row in EXPORT])
    spanish = plain_vocabulary([plain_sentence(row[3]) for row in EXPORT])
    model = notebooks.Tatoeba(words=(len(english), len(spanish)))
    loaded = imported("tatoeba-en-es", model, data=file)
    assert loaded.data.target_vocabulary.words == spanish


@pytest.mark.slow
def test_vocabularies_of_a_real_export_are_those_of_the_notebook(notebooks, imported, real):
    path = real("eng-vie.tatoeba-export-2025-11-12.4col.tsv.xz")
    import lzma

    lines = lzma.decompress(path.read_bytes()).decode("utf-8").splitlines()
    rows = [line.strip().split("\t") for line in lines if "\t" in line]
    expected = [Counter(), Counter()]
    for row in rows:
        for side, column in enumerate((1, 3)):
            expected[side].update(plain_sentence(row[column]).split())
    words = [["<pad>", "<unk>", *(word for word, _ in counts.most_common())] for counts in expected]
    model = notebooks.Tatoeba(words=(len(words[0]), len(words[1])), width=8, layers=1)
    loaded = imported("tatoeba-en-es", model, data=path)
    assert loaded.data.source_vocabulary.words == words[0]
    assert loaded.data.target_vocabulary.words == words[1]


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


def test_sentences_of_a_batch_are_translated_as_in_a_batch_of_one(notebooks, imported):
    model = notebooks.Scratch()
    loaded = imported("scratch-en-fr", spread(model, model.fc, 3))
    sentences = ["I love you", "hello", "she walks slow", "we go"]
    assert loaded.translate(sentences) == [loaded.translate([sentence])[0] for sentence in sentences]
    assert loaded.translate([]) == []


def test_unknown_words_are_dropped_as_in_the_notebook(notebooks, imported):
    loaded = imported("scratch-en-fr", notebooks.Scratch())
    assert loaded.data.tokenise("cat is small", "source") == [9, 22, 39]
    assert loaded.unknown_words("cat is small") == ["is"]


def refused(h2h, *arguments):
    code, out, err = h2h(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("h2h: ")
    assert err.count("\n") == 1
    return err.removeprefix("h2h: ").rstrip("\n")


def test_a_notebook_without_decoding_is_refused_with_the_reason(notebooks, saved, h2h):
    file = saved(notebooks.Architecture())
    assert h2h("import-checkpoint", file, "--recipe", "architecture-en-de", "--name", "two")[0] == 0
    assert refused(h2h, "translate", "two", "hello world") == (
        "run 'two' cannot translate: its recipe defines no decoding (evaluate.decode: none): "
        "without <sos> and <eos> generation has no start and no stop"
    )


def test_a_run_without_vocabularies_cannot_translate(notebooks, saved, h2h):
    file = saved(notebooks.Tatoeba())
    code, out, _ = h2h("import-checkpoint", file, "--recipe", "tatoeba-en-es", "--name", "three")
    assert code == 0
    assert (
        "note: it was imported without --data: it has no vocabularies, works on ids alone and cannot translate" in out
    )
    assert refused(h2h, "translate", "three", "hello") == (
        "run 'three' has no vocabularies; repeat h2h import-checkpoint with --data "
        "and the file of sentence pairs it was trained on"
    )
    assert "has no vocabularies" in refused(h2h, "attention", "three", "hello")


def test_a_word_that_notebook_4_does_not_have_is_refused_by_name(notebooks, imported):
    loaded = imported("slides-en-fr", notebooks.Slides())
    with pytest.raises(HeadToHeadError, match="no word 'hate'"):
        loaded.translate(["I hate AI ."])


def test_a_sentence_longer_than_the_table_is_refused(notebooks, imported):
    loaded = imported("scratch-en-fr", notebooks.Scratch())
    assert loaded.translate(["I love you good"])
    with pytest.raises(HeadToHeadError, match="6 tokens exceeds the 5 positions"):
        loaded.translate(["I love you good night"])
    with pytest.raises(HeadToHeadError, match="6 tokens"):
        loaded.logits(torch.ones(1, 5).long(), torch.ones(1, 6).long())


def test_attention_of_an_imported_run_is_shown(notebooks, saved, h2h):
    """The target can be the run's translation, which can contain ids without a word."""
    model = notebooks.Scratch(words=(40, 60))
    with torch.no_grad():
        model.fc.bias[55] += 100.0
    arguments = ("import-checkpoint", saved(model), "--recipe", "scratch-en-fr", "--name", "one")
    assert h2h(*arguments)[0] == 0
    code, out, _ = h2h("attention", "one", "I love you", "--target", "Je t’aime")
    assert code == 0
    assert {"<sos>", "Je", "t’aime"} <= set(out.split())
    code, out, _ = h2h("attention", "one", "I love you")
    assert code == 0
    assert {"<sos>", "55"} <= set(out.split())


def test_attention_of_a_run_without_decoding_requires_a_target(notebooks, saved, h2h):
    file = saved(notebooks.Architecture())
    assert h2h("import-checkpoint", file, "--recipe", "architecture-en-de", "--name", "two")[0] == 0
    assert "pass a target" in refused(h2h, "attention", "two", "hello world")
    code, out, _ = h2h("attention", "two", "hello world", "--target", "hallo welt")
    assert code == 0
    assert "hallo" in out
