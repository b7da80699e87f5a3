"""Prepared data of a configuration: from the cache, or loaded, prepared and stored there."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headtohead.config.validation_errors import parse_options
from headtohead.data.encoding import prepare_corpus
from headtohead.data.prepared import PreparedData
from headtohead.data.store import PreparedStore, data_identity
from headtohead.data.vocabularies import file_name, tokenizer_key
from headtohead.errors import HeadToHeadError
from headtohead.plugins.dataset import Corpus, Dataset, Pair
from headtohead.plugins.entry import Options
from headtohead.plugins.reads import declared_reads
from headtohead.plugins.registry import calling, find_dataset, find_entry
from headtohead.plugins.watched_reads import only_declared_reads
from headtohead.schema.run_config import NOTHING_HELD_OUT, DataConfig
from headtohead_judge.child import call_in_child

log = logging.getLogger(__name__)


def loaded_split(dataset: type[Dataset], split: str) -> str:
    """Return the ``split`` argument of ``Dataset.load``: ``nothing-held-out`` loads the first split."""
    return dataset.splits[0] if split == NOTHING_HELD_OUT else split


def prepare(config: DataConfig, cache: Path) -> PreparedData:
    """Return the prepared data of a configuration, from the cache if they are there.

    Raises:
        HeadToHeadError: If options, files, downloads or sentence pairs are invalid, or a dataset of a plugin fails.
    """
    dataset = find_dataset(config.dataset)
    config = _with_parsed_options(config, dataset)
    options = config.options
    split = loaded_split(dataset, config.split)
    downloads = cache / "downloads"
    reads = reads_hash(dataset, options)
    source = find_entry("dataset", config.dataset).source_sha256
    identity = data_identity(config, source + reads + tokenizer_key(config))
    store = PreparedStore(cache / "prepared", identity)
    with only_declared_reads(dataset, options), calling(dataset):
        early_key = dataset.cache_key(options, split, downloads)
    if early_key:
        data = store.load(early_key)
        if data is not None:
            return data

    log.info("loading dataset %s, split %s", config.dataset, split)
    corpus = load_corpus(dataset, options, split, downloads)
    with calling(dataset):
        key = dataset.cache_key(options, split, downloads)
    if not key:
        key = _corpus_key(corpus)
    has_changed = early_key is not None and key != early_key
    if has_changed or reads_hash(dataset, options) != reads:
        raise HeadToHeadError(
            f"a file of dataset '{config.dataset}' changed while it was read; run the command again"
        )
    if key != early_key:
        data = store.load(key)
        if data is not None:
            return data
    if config.vocabulary.file is None:
        data = prepare_corpus(corpus, config, reads)
        store.save(key, data)
        return data
    return _prepare_in_child(corpus, config, store, key, reads)


def _with_parsed_options(config: DataConfig, dataset: type[Dataset]) -> DataConfig:
    """Return the configuration with an instance of the dataset's options; a record has them as JSON values."""
    if isinstance(config.options, dataset.Options):
        return config
    values = config.options.model_dump(mode="json")
    options = parse_options(dataset.Options, values, config.dataset)
    return config.model_copy(update={"options": options})


def _corpus_key(corpus: Corpus) -> str:
    """Return a cache key of a corpus whose dataset has none; ``data_hash`` stands for the pairs."""
    fields = dict(vars(corpus))
    del fields["pairs"]
    return str(fields)


def _prepare_in_child(
    corpus: Corpus, config: DataConfig, store: PreparedStore, key: str, reads: str
) -> PreparedData:
    """Return the data of a configuration with a tokenizer file, prepared in a child process.

    The library can panic, abort or run for ever on such a file. The cache passes the data to this process.
    """
    values = {**vars(corpus), "pairs": [list(vars(pair).values()) for pair in corpus.pairs]}
    del values["data_hash"]  # computed from the pairs
    name = file_name(config)
    call_in_child(
        name,
        f"{__name__}:prepare_and_save",
        values,
        config.model_dump(mode="json"),
        str(store.folder),
        store.identity,
        key,
        reads,
    )
    data = store.load(key)
    if data is None:
        raise HeadToHeadError(
            f"{name} cannot be read: its prepared data are damaged; run the command again"
        )
    return data


def prepare_recorded(config: DataConfig, cache: Path, recorded: str) -> PreparedData:
    """Return the prepared data of a run; ``recorded`` is the data_hash of its record.

    Raises:
        HeadToHeadError: As ``prepare``, and if the data has changed since the run was planned.
    """
    data = prepare(config, cache)
    if data.data_hash != recorded:
        raise HeadToHeadError(
            f"the data of dataset '{config.dataset}' has changed since the run was planned (data_hash {recorded[:8]}, "
            f"now {data.data_hash[:8]}); restore its files, or run the experiment again with the new data; a dataset "
            "of a plugin must return the same pairs in the same order in every process, unlike a set"
        )
    return data


def prepare_and_save(
    corpus: Mapping[str, Any],
    config: Mapping[str, Any],
    folder: str,
    identity: list[Any],
    key: str,
    reads: str,
) -> None:
    """Prepare a corpus and write it to the cache; ``prepare`` calls this in a child process with JSON values.

    Args:
        corpus: The fields of a `Corpus`, with a list of values for each pair.
        config: The ``data`` section.
        folder: Folder of prepared data.
        identity: What the prepared data depend on besides the corpus.
        key: The cache key of the corpus.
        reads: As for ``prepare_corpus``.

    Raises:
        HeadToHeadError: As ``prepare_corpus``, or if the folder cannot be written.
    """
    pairs = [Pair(*values) for values in corpus["pairs"]]
    parsed_corpus = Corpus(**{**corpus, "pairs": pairs})
    parsed_config = DataConfig.model_validate_json(json.dumps(config))
    data = prepare_corpus(parsed_corpus, parsed_config, reads)
    PreparedStore(Path(folder), identity).save(key, data)


def read_corpus(config: DataConfig, cache: Path) -> Corpus:
    """Return the raw corpus of a configuration; download it first if necessary."""
    dataset = find_dataset(config.dataset)
    split = loaded_split(dataset, config.split)
    return load_corpus(dataset, config.options, split, cache / "downloads")


def load_corpus(dataset: type[Dataset], options: Options, split: str, downloads: Path) -> Corpus:
    """Return the corpus of a dataset; arguments as for `Dataset.load`.

    Raises:
        HeadToHeadError: If a file or the network fails, the content is invalid, or a dataset of a plugin fails or reads
            a file that it does not declare.
    """
    with only_declared_reads(dataset, options), calling(dataset):
        return dataset.load(options, split, downloads)


def reads_hash(dataset: type[Dataset], options: Options) -> str:
    """Return a hash of what a dataset declares to read; an empty text for a dataset that declares nothing."""
    return "".join(f"{read.name} {read.sha256}\n" for read in declared_reads(dataset, options))
