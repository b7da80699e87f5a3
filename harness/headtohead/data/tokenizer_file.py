"""Vocabularies from a ``tokenizer.json`` of Hugging Face's ``tokenizers``.

Ids are those of the file. The four special tokens get the names that headtohead uses.
"""

from __future__ import annotations

import json
from pathlib import Path

from headtohead import files
from headtohead.data.subwords import load_tokenizer
from headtohead.data.vocabulary import EOS_WORD, PAD_WORD, SOS_WORD, UNK_WORD, Vocabulary
from headtohead.data.wordlists import refuse_counting_fields
from headtohead.errors import HeadToHeadError, shown_path, similar
from headtohead.schema.run_config import DataConfig, VocabularyConfig

USUAL_NAMES = {
    "pad": ("<pad>", "[PAD]", "<|pad|>", "<|padding|>"),
    "unk": ("<unk>", "[UNK]", "<|unk|>", "<|unknown|>"),
    "bos": ("<s>", "<bos>", "<sos>", "[BOS]", "[CLS]", "<|startoftext|>", "<|begin_of_text|>"),
    "eos": ("</s>", "<eos>", "[EOS]", "[SEP]", "<|endoftext|>", "<|end_of_text|>"),
}
"""Names that are recognised without ``data.vocabulary.special_tokens``; the first that exists counts."""

OWN_NAMES = {"pad": PAD_WORD, "unk": UNK_WORD, "bos": SOS_WORD, "eos": EOS_WORD}
MAX_UNUSED_IDS = 10_000


def read_tokenizer(config: DataConfig) -> Vocabulary:
    """Return the vocabulary of the file ``data.vocabulary.file``, which contains the file's text.

    Raises:
        HeadToHeadError: If the file is not a tokenizer, or a special token is missing.
        UndefinedError: If other fields contradict the file.
    """
    vocabulary, name = config.vocabulary, file_name(config)
    reason = "data.vocabulary.file has its own tokens and ids"
    refuse_counting_fields(config, reason, "data.vocabulary.ids", vocabulary.ids != "standard")
    text = _read(config)
    try:
        tokenizer = load_tokenizer(text)
    except HeadToHeadError as error:
        raise HeadToHeadError(f"{name}: {error}") from error
    except Exception as error:  # the package raises plain exceptions
        reason = " ".join(str(error).split())
        raise HeadToHeadError(f"{name} is not a tokenizer.json of Hugging Face's tokenizers ({reason})") from error
    if json.loads(text)["model"].get("dropout"):
        raise HeadToHeadError(f"{name} splits words at random (model.dropout); set it to null in the file")
    ids: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
    size = max(ids.values(), default=-1) + 1
    if size > len(ids) + MAX_UNUSED_IDS:
        raise HeadToHeadError(f"{name} has {len(ids)} tokens with ids up to {size - 1}")
    words = [f"<unused {index}>" for index in range(size)]
    for word, index in ids.items():
        words[index] = word
    for kind, token in _special_tokens(ids, vocabulary, name).items():
        words[ids[token]] = OWN_NAMES[kind]
    repeated = {word for word in OWN_NAMES.values() if words.count(word) > 1}
    if repeated:
        raise HeadToHeadError(
            f"{name} uses '{min(repeated)}' for another token than the special token of that name; name the special "
            "tokens in data.vocabulary.special_tokens"
        )
    return Vocabulary(words, True, vocabulary.unknown, text)


def tokenizer_key(config: DataConfig) -> str:
    """Return what prepared data depend on in the file and the names of its special tokens; empty without a file."""
    if config.vocabulary.file is None:
        return ""
    return json.dumps([_read(config), config.vocabulary.special_tokens.model_dump()])


def file_name(config: DataConfig) -> str:
    """Return the field and the path of the file, for messages."""
    return f"data.vocabulary.file '{shown_path(str(config.vocabulary.file))}'"


def _read(config: DataConfig) -> str:
    try:
        return files.read_text(Path(str(config.vocabulary.file)))
    except FileNotFoundError as error:
        raise HeadToHeadError(f"{file_name(config)} does not exist") from error


def _special_tokens(ids: dict[str, int], vocabulary: VocabularyConfig, name: str) -> dict[str, str]:
    """Return the special tokens of the file: the configured ones, else those with a usual name."""
    found: dict[str, str] = {}
    for kind, usual in USUAL_NAMES.items():
        field = f"data.vocabulary.special_tokens.{kind}"
        token: str | None = getattr(vocabulary.special_tokens, kind)
        if token is not None and token not in ids:
            hint = similar(token, [other for other in ids if not other.isalnum()][:1000])
            raise HeadToHeadError(f"{field}: {name} has no token '{token}'{hint}")
        token = token or next((candidate for candidate in usual if candidate in ids), None)
        if token is not None:
            found[kind] = token
        elif kind != "unk" or vocabulary.unknown == "token":
            remedy = ", or set data.vocabulary.unknown: refuse if it has a token for every text" * (kind == "unk")
            raise HeadToHeadError(
                f"{name} has none of the tokens {', '.join(usual)}; name its token in {field}{remedy}"
            )
    if len(set(found.values())) < len(found):
        listed = ", ".join(f"{kind}: {token}" for kind, token in found.items())
        raise HeadToHeadError(f"data.vocabulary.special_tokens: each needs its own token, but found {listed}")
    return found
