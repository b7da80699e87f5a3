"""Data preparation: from the name of a dataset to token ids in batches."""

from __future__ import annotations

from headtohead.config.project import cache_root
from headtohead.data.byte_alphabet import BYTES, NUMBER, text_tokens, tokenizers_package, written
from headtohead.data.download import fetch, fetched_sha256
from headtohead.data.encoding import prepare_corpus
from headtohead.data.generated import (
    ComputedDataset,
    Example,
    LabelledDataset,
    LengthOptions,
    SizeOptions,
    Task,
)
from headtohead.data.metrics import BLEU, CHRF, EXACT_MATCH
from headtohead.data.passages import Passage, last_passages, spread_passages
from headtohead.data.prepared import PreparedData, Split
from headtohead.data.preparing import prepare, prepare_recorded, read_corpus
from headtohead.data.reading import file_sha256, open_file, parse_json, read_lines, read_text
from headtohead.data.reference_points import bag_of_words_upper_bound
from headtohead.data.tables import Format, Row, read_rows
from headtohead.data.token_files import read_token_ids
from headtohead.data.tokeniser import Side
from headtohead.data.vocabulary import EOS, PAD, SOS, SPECIALS, UNK, Vocabulary
from headtohead.plugins.dataset import hash_pairs
from headtohead.schema.metric import Metric
from headtohead_judge.child import call_in_child

__all__ = [
    "BLEU",
    "BYTES",
    "CHRF",
    "EOS",
    "EXACT_MATCH",
    "NUMBER",
    "PAD",
    "SOS",
    "SPECIALS",
    "UNK",
    "ComputedDataset",
    "Example",
    "Format",
    "LabelledDataset",
    "LengthOptions",
    "Metric",
    "Passage",
    "PreparedData",
    "Row",
    "Side",
    "SizeOptions",
    "Split",
    "Task",
    "Vocabulary",
    "bag_of_words_upper_bound",
    "cache_root",
    "call_in_child",
    "fetch",
    "fetched_sha256",
    "file_sha256",
    "hash_pairs",
    "last_passages",
    "open_file",
    "parse_json",
    "prepare",
    "prepare_corpus",
    "prepare_recorded",
    "read_corpus",
    "read_lines",
    "read_rows",
    "read_text",
    "read_token_ids",
    "spread_passages",
    "text_tokens",
    "tokenizers_package",
    "written",
]
