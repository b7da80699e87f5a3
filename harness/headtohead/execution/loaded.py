"""Loading of finished runs for translation, attention maps and logits."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from headtohead.config.entries import parsed_options
from headtohead.config.project import runs_folder
from headtohead.data import SPECIALS, PreparedData, Side, cache_root, prepare_recorded
from headtohead.errors import HeadToHeadError, is_out_of_memory
from headtohead.execution.exported import CONFIG, WEIGHTS, read_exported
from headtohead.model.counting import mode_without_data
from headtohead.model.decoding import Ends, non_autoregressive, translate_each
from headtohead.model.plugin_errors import plugin_errors
from headtohead.model.precision import matmul_precision
from headtohead.model.transformer import Transformer
from headtohead.plugins.launcher import machine_memory
from headtohead.plugins.registry import current
from headtohead.schema.run_config import RunConfig
from headtohead.storage.experiment import examples_of
from headtohead.storage.run import CHECKPOINT, RUN, RunRecord
from headtohead.storage.run_directory import RunDirectory, find_run
from headtohead.training import checkpoint
from headtohead.training.maps import SentenceMaps, probe_maps

NO_TRANSLATION = {
    "none": "its recipe defines no decoding (evaluate.decode: none): without <sos> and <eos> "
    "generation has no start and no stop",
    "teacher-forced": "it decodes from the reference (evaluate.decode: teacher-forced), which a new sentence lacks",
}
"""Reasons why a run cannot translate, by the value of ``evaluate.decode``."""

SMALL_LENGTH = 64
"""Tokens of the pass whose size decides whether the shapes of weights are those of tensors on the CPU."""


@dataclass(frozen=True, repr=False)
class Tokenizer:
    """Normalisation, tokens and vocabularies of a run, for ``side`` "source" or "target".

    Both sides have the same vocabulary with ``data.vocabulary.shared``. A token of a text is a character, a byte or a
    subword, in the alphabet of bytes of GPT-2: ``Ġ`` is a space, ``Ċ`` a line feed.
    """

    data: PreparedData

    def encode(self, text: str, side: Side = "source") -> list[int]:
        """Return the ids of a raw text, with the boundary tokens and the truncation of training.

        Raises:
            HeadToHeadError: If the vocabulary refuses a word (``data.vocabulary.unknown: refuse``).
        """
        return self.data.tokenise(text, side)

    def decode(self, ids: Iterable[int], side: Side = "target") -> str:
        """Return the text of ids without <pad>, <sos> and <eos>.

        It is the encoded sentence after normalisation, or exactly the encoded text, with <unk> for an unknown token.
        """
        return self.data.decode(map(int, ids), side)

    def tokens(self, ids: Iterable[int], side: Side = "source") -> list[str]:
        """Return the token of each id, special tokens included; an id without a token is returned as its digits."""
        return [self.data.vocabulary(side).label(int(index)) for index in ids]

    def vocab_size(self, side: Side = "source") -> int:
        """Return the number of tokens of a side, special tokens included."""
        return len(self.data.vocabulary(side))

    def special_ids(self, side: Side = "source") -> dict[str, int | None]:
        """Return the ids of "pad", "unk", "sos" and "eos"; None for a token that the vocabulary lacks."""
        vocabulary = self.data.vocabulary(side)
        return {
            "pad": vocabulary.pad,
            "unk": vocabulary.unk,
            "sos": vocabulary.sos,
            "eos": vocabulary.eos,
        }

    def __repr__(self) -> str:
        return f"Tokenizer(source={self.vocab_size('source')} tokens, target={self.vocab_size('target')} tokens)"


@dataclass(frozen=True, repr=False)
class LoadedRun:
    """A model with its vocabularies, in evaluation mode on the CPU.

    Attributes:
        path: The run directory.
        config: The complete configuration.
        model: The torch module. All its tensors have a leading member dimension, which is 1 in a loaded run.
            `logits`, `translate`, `generate` and `attention` add and remove this dimension.
        words: Vocabularies and tokenisers. None only for a checkpoint that was imported without them; then every method
            raises an error that requires them. A subclass, such as that of imported checkpoints, may accept ids
            nevertheless.
        record: The run's record.
    """

    path: Path
    config: RunConfig
    model: Transformer
    words: PreparedData | None
    record: RunRecord

    @classmethod
    def read_words(
        cls, run: RunDirectory, record: RunRecord, config: RunConfig
    ) -> PreparedData | None:
        """Return the vocabularies of a run directory.

        Raises:
            HeadToHeadError: If the data has changed since the training.
        """
        return prepare_recorded(config.data, cache_root(), record.data["data_hash"])

    @property
    def decoding_limit(self) -> int:
        """Maximum number of tokens of a translation; 0 for a checkpoint without vocabularies."""
        return self.record.decoding_limit

    @property
    def data(self) -> PreparedData:
        """Vocabularies and tokenisers.

        Raises:
            HeadToHeadError: If the checkpoint was imported without vocabularies.
        """
        if self.words is None:
            raise HeadToHeadError(
                f"run '{self.path.name}' has no vocabularies; repeat h2h "
                "import-checkpoint with --data and the file of sentence pairs it was trained on"
            )
        return self.words

    @property
    def tokenizer(self) -> Tokenizer:
        """The conversion of text to ids and back."""
        return Tokenizer(self.data)

    @property
    def pitfalls(self) -> list[str]:
        """Names of the settings that make this run's results less meaningful than they appear."""
        return [pitfall.name for pitfall in self.record.pitfalls]

    @property
    def can_translate(self) -> bool:
        """Whether `translate` accepts sentences."""
        return self.words is not None and self.config.evaluate.decode not in NO_TRANSLATION

    @property
    def pad(self) -> int | None:
        """The id of padding."""
        return self.data.source_vocabulary.pad

    def logits(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        """Return the logits ``[batch, time, vocab]`` of the token after each target token.

        Args:
            source_ids: ``[batch, time]`` with boundary tokens, and padding on the right.
            target_ids: ``[batch, time]`` with padding on the right; starts with <sos> if the vocabulary has it. A run
                on a text has the ids of the text here, and ``source_ids`` of shape ``[batch, 0]``.

        The number of tokens other than padding is taken as the length of a row. Padding elsewhere than on the right is
        not refused: it counts as a token, and as many tokens at the end of the row are masked as padding.

        Raises:
            HeadToHeadError: If the run has no vocabularies, which define the id of padding, or the ids exceed the
                maximum length of a positional encoding or an attention.
        """
        source = source_ids.unsqueeze(0)
        target = target_ids.unsqueeze(0)
        with torch.no_grad(), matmul_precision(self.model):
            stacked = self.model(source, self.lengths(source), target, self.lengths(target))
        logits: Tensor = stacked[0]
        return logits

    def translate(self, sentences: Sequence[str]) -> list[str]:
        """Return the translation of each sentence, in normalised text; empty without sentences.

        Args:
            sentences: Raw text. A translation does not depend on the other sentences.

        Raises:
            HeadToHeadError: If a single text is given; if the run has no vocabularies or cannot translate; if its
                vocabulary refuses a word; or if a sentence has no token, not even a boundary token, or exceeds the
                maximum length of an encoding or an attention.
        """
        if isinstance(sentences, str):
            raise HeadToHeadError("translate takes a list of sentences, got one string")
        self._refuse_undefined()
        encoded = [self.data.tokenise(sentence, "source") for sentence in sentences]
        return [self.data.decode(ids) for ids in self._generated(encoded)]

    @torch.no_grad()
    def continue_text(
        self, prompt: str, tokens: int, temperature: float = 1.0, seed: int = 1
    ) -> str:
        """Return a prompt with a continuation, of a run whose data have no sources.

        Each token is sampled from the distribution after the text so far, of which the model gets the last tokens: at
        most as many as the decoder reads of a training block. Special tokens are never sampled.

        Args:
            prompt: Raw text.
            tokens: Number of sampled tokens; with 0, the result is the prompt as the vocabulary encodes it.
            temperature: Divisor of the logits, at least 0 and finite; 0 takes the most probable token.
            seed: Seed of the samples.

        Raises:
            HeadToHeadError: If the run has no vocabularies, its data have sources, the prompt has no token or one that
                the vocabulary refuses, or the temperature is negative, infinite or NaN.
        """
        if not 0 <= temperature < math.inf:
            raise HeadToHeadError(
                f"temperature {temperature} is no finite number of at least 0; 1 keeps the distribution of the model"
            )
        if self.data.has_sources:
            raise HeadToHeadError(
                f"run '{self.path.name}' translates; leave out --tokens, --temperature and --seed"
            )
        tokeniser = self.data.tokenisers["target"]
        vocabulary = tokeniser.vocabulary
        context = self.record.data["longest"]["target"] - 1  # a block without its last token
        ids = vocabulary.encode(tokeniser.tokens(prompt))
        if not ids:
            raise HeadToHeadError(
                "the prompt is empty; type at least one character that occurs in the training text"
            )
        specials = [vocabulary.words.index(word) for word in SPECIALS if word in vocabulary.words]
        generator = torch.Generator().manual_seed(seed)
        with matmul_precision(self.model):
            for _ in range(tokens):
                last = self._target_logits(ids[-context:])[-1].float()
                last[specials] = -torch.inf
                if temperature:
                    # Relative to the maximum and in float64, so that no small temperature overflows.
                    scaled = (last - last.max()).double() / temperature
                    probabilities = scaled.softmax(-1).float()
                    chosen = torch.multinomial(probabilities, 1, generator=generator)
                else:
                    chosen = last.argmax()
                ids.append(int(chosen))
        return tokeniser.decode(ids)

    @torch.no_grad()
    def label(self, sequence: str) -> str:
        """Return the most probable labels of the words in brackets, or else of the last word, of a sequence.

        Args:
            sequence: Words separated by spaces, such as ``k1 v2 k3 v4 [k1]``, at least one, for a run on sequences with
                labels. Whether the run is one is not checked.

        Raises:
            HeadToHeadError: If the run has no vocabularies, its vocabulary refuses a word, or the sequence exceeds the
                maximum length of an encoding or an attention.
        """
        words = sequence.split()
        plain = [re.sub(r"^\[(.+)\]$", r"\1", word) for word in words]
        labelled = [index for index, word in enumerate(words) if word != plain[index]]
        if not labelled:
            labelled = [len(words) - 1]
        ids = self.data.tokenise(" ".join(plain), "target")[:-1]  # without <eos>
        with matmul_precision(self.model):
            logits = self._target_logits(ids)
        labels = logits[len(ids) - len(words) :].argmax(-1)
        return self.data.decode(labels[labelled].tolist())

    def _target_logits(self, ids: Sequence[int]) -> Tensor:
        """Return the logits ``[time, vocab]`` of target ids without a source."""
        target = torch.tensor([[list(ids)]])
        no_source = target[..., :0]
        logits: Tensor = self.model(
            no_source, self.lengths(target) * 0, target, self.lengths(target)
        )
        return logits[0, 0]

    def generate(self, source_ids: Sequence[int]) -> list[int]:
        """Return the generated target ids of a single source.

        Stepwise decoding has at most ``decoding_limit`` ids: without <eos>, the ids after it, and padding.
        Non-autoregressive decoding has at most one id for each id of the source, without ids of 0; it does not end at
        <eos>.

        Args:
            source_ids: The ids of the source with its boundary tokens; at least one.

        Raises:
            HeadToHeadError: If the run has no vocabularies, cannot translate or, in stepwise decoding, lacks <sos> or
                <eos>; or if the source is empty, has an id outside of the model's table, or exceeds the maximum length
                of an encoding or an attention.
        """
        self._refuse_undefined()
        return self._generated([source_ids])[0]

    def _generated(self, sources: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return the generated ids of each source as `decode` does, after a check of the sources.

        Raises:
            HeadToHeadError: If a source is empty, has an id outside of the model's table, or exceeds the maximum length
                of an encoding or an attention; or if the run has no vocabularies or, in stepwise decoding, lacks <sos>
                or <eos>.
        """
        size = self.model.vocab_sizes.source
        for ids in sources:
            if len(ids) == 0:  # also of an array
                raise HeadToHeadError("a source has no token; write at least one word")
            for index in ids:
                if not 0 <= index < size:
                    raise HeadToHeadError(
                        f"the source has the id {index}; expected an id from 0 to {size - 1}"
                    )
        with matmul_precision(self.model):
            return self.decode(sources)

    def attention(self, source: str, target: str | None = None) -> SentenceMaps:
        """Return the attention maps of every layer, head and role for a sentence.

        The decoder input is ``target``; default: the run's own translation. A run on a text reads ``source`` as text.

        Raises:
            HeadToHeadError: If the run has no vocabularies, or its vocabulary refuses a word; if a text has too many
                tokens for an encoding or an attention; or if ``target`` is None and the run, which has sources, has no
                translation of its own (``evaluate.decode`` is none or teacher-forced).
        """
        texts = self.data.texts(source, target)
        return probe_maps(self.model, self.data, *texts, self.decoding_limit, "given")[0]

    def unknown_words(self, sentence: str) -> list[str]:
        """Return the different tokens of a sentence or a prompt that the run's vocabulary lacks, in order."""
        if examples_of(self.record.data) == "sequences":
            # Brackets mark the words that are labelled.
            sentence = sentence.replace("[", "").replace("]", "")
        return self.data.tokenisers["source"].unknown(sentence)

    @torch.no_grad()
    def decode(self, encoded: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return the generated ids of each source, independent of the other sources.

        Unlike `generate`, it does not refuse a run whose recipe defines no decoding, or a source without ids.

        Raises:
            HeadToHeadError: If the run has no vocabularies or, in stepwise decoding, lacks <sos> or <eos>; or if a
                source exceeds the maximum length of an encoding or an attention.
        """
        if self.config.evaluate.decode != "non-autoregressive":
            padded = translate_each(self.model, encoded, self.decoding_limit, self.ends)
            return [[index for index in ids if index != self.pad] for ids in padded]
        decoded = []
        for ids in encoded:
            source = torch.tensor([[list(ids)]])
            written = non_autoregressive(self.model, source, self.lengths(source))[0, 0].tolist()
            decoded.append([index for index in written if index != 0])
        return decoded

    @property
    def ends(self) -> Ends:
        """The ids of <sos>, of <eos> and of padding, which is <eos> in a vocabulary without <pad>.

        Raises:
            HeadToHeadError: If the run has no vocabularies, or that of the target lacks <sos> or <eos>.
        """
        ends = Ends.of(self.data.target_vocabulary)
        if ends is None:
            raise HeadToHeadError(
                f"run '{self.path.name}' cannot translate: its target vocabulary lacks <sos> or <eos>"
            )
        return ends

    def lengths(self, ids: Tensor) -> Tensor:
        """Return the number of tokens without padding, ``[member, batch]``."""
        if self.pad is None:
            return torch.full(ids.shape[:-1], ids.shape[-1])
        return (ids != self.pad).sum(-1)

    def _refuse_undefined(self) -> None:
        reason = NO_TRANSLATION.get(self.config.evaluate.decode)
        if reason:
            raise HeadToHeadError(f"run '{self.path.name}' cannot translate: {reason}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    def _repr_html_(self) -> str:
        from headtohead.report.notebook import loaded_html  # loads matplotlib

        return loaded_html(self)


def load(
    run: Path | str, *, runs: Path | str | None = None, dtype: torch.dtype | None = None
) -> LoadedRun:
    """Load a finished run, an imported checkpoint, or an exported model, on the CPU in evaluation mode.

    The data of a run that was trained here are prepared again, and written to the cache, if the cache lacks them.

    Args:
        run: The run's directory, its name, or an unambiguous prefix of its name; or the folder of an exported model.
        runs: The folder of run directories, for lookup by name.
        dtype: Type of the weights; default: float64 for a run with that precision, else float32.

    Raises:
        HeadToHeadError: If no run or several runs match; if the run is not DONE; if a file of it is missing or damaged,
            or its weights do not fit its configuration; if its data have changed or cannot be read; if a plugin of it
            is missing, or raises an error while the model is built; or if the model does not fit into memory. Errors
            of the hook ``on_load`` are raised unchanged. The weights of an exported model are compared with its
            manifest, those of a run with its status.
    """
    is_exported = all(Path(run, name).is_file() for name in (CONFIG, WEIGHTS))
    saved = _saved_export(Path(run)) if is_exported else _saved_run(run, runs)
    config = saved.config
    words = saved.words
    imported = saved.record.imported
    if imported is not None:
        sizes = imported.words["source"], imported.words["target"]
    else:
        assert words is not None
        sizes = len(words.source_vocabulary), len(words.target_vocabulary)
    with _model_errors(config, saved.record_file):
        expected = _expected_weights(config, sizes)
    tensors = checkpoint.load_weights(saved.weights, expected)
    with _model_errors(config, saved.record_file):
        model = Transformer(config, [1], *sizes)
        if config.train.precision == "float64":
            model.double()
        if dtype is not None:
            model.to(dtype)
    model.load_member(0, tensors)
    return saved.kind(saved.path, config, model.eval(), words, saved.record)


class _Saved(NamedTuple):
    """The record of a run or of an exported model, without its weights."""

    path: Path
    record: RunRecord
    record_file: Path
    config: RunConfig
    kind: type[LoadedRun]
    words: PreparedData | None
    weights: Path


def _saved_export(folder: Path) -> _Saved:
    """Return the record and the vocabularies of an exported model, and the path of its weights, all verified."""
    record, words = read_exported(folder)
    config = parsed_options(record.config, folder.name)
    kind = _class_of(folder, record)
    return _Saved(folder, record, folder / CONFIG, config, kind, words, folder / WEIGHTS)


def _saved_run(run: Path | str, runs: Path | str | None) -> _Saved:
    """Return the record and the vocabularies of a DONE run, and the path of its weights, which are verified.

    Args:
        run: The run's directory, its name, or an unambiguous prefix of its name.
        runs: The folder of run directories, for lookup by name.

    Raises:
        HeadToHeadError: If no run or several runs match; if the run is not DONE; if a file of it is missing or damaged;
            if its data have changed or cannot be read; or if a plugin of it is missing.
    """
    path = find_run(run, runs_folder(given=runs))
    directory = RunDirectory(path)
    directory.require_done()
    record = directory.record
    config = parsed_options(record.config, path.name)
    kind = _class_of(path, record)
    words = kind.read_words(directory, record, config)
    weights = directory.verified(CHECKPOINT)
    return _Saved(path, record, path / RUN, config, kind, words, weights)


def _class_of(path: Path, record: RunRecord) -> type[LoadedRun]:
    """Return the class that a plugin has for a run, or `LoadedRun`."""
    for kind in current().manager.hook.on_load(run=path, record=record):
        if kind is not None:
            loaded_class: type[LoadedRun] = kind
            return loaded_class
    return LoadedRun


@contextmanager
def _model_errors(config: RunConfig, record: Path) -> Iterator[None]:
    """Replace errors of building a model by errors that name its record; a context manager.

    It replaces out-of-memory errors, and plugin errors as `plugin_errors` does. Other errors pass unchanged.

    Args:
        config: The configuration of the run.
        record: The path of the record, for the message.

    Raises:
        HeadToHeadError: In place of these errors, and if an entry of ``config`` is not registered.
    """
    subject = f"the model of '{record}'"
    try:
        with plugin_errors(config, subject=subject):
            yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise HeadToHeadError(
            f"{subject} does not fit into the memory of this machine; if the sizes in the file are wrong, restore "
            "it, or move its folder away"
        ) from error


def _expected_weights(config: RunConfig, sizes: tuple[int, int]) -> dict[str, Tensor]:
    """Return tensors with the shapes of the weights of a run by name.

    They are on the device ``meta``, which allocates no memory, or zeros of a small model.

    Raises:
        MemoryError: If the weights are larger than the memory of this machine.
    """
    with mode_without_data(config, sum(sizes), SMALL_LENGTH):
        model = Transformer(config, None, *sizes)
    tensors = [*model.parameters(), *model.buffers()]
    if sum(tensor.numel() * tensor.element_size() for tensor in tensors) > machine_memory():
        raise MemoryError
    return {name: weights[0] for name, weights in model.state_dict().items()}
