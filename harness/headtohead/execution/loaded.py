"""Loading of finished runs for translation, attention maps and logits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headtohead.config.project import runs_folder
from headtohead.config.versions import recorded_config
from headtohead.data import PreparedData, cache_root, prepare
from headtohead.data.prepared import tokenisers_of
from headtohead.data.vocabulary import PAD, Vocabulary
from headtohead.errors import HeadToHeadError
from headtohead.execution.exported import WEIGHTS, is_exported, read_exported
from headtohead.execution.tokenizer import Tokenizer
from headtohead.model.grouping import translate_each
from headtohead.model.precision import products_of
from headtohead.model.transformer import Transformer
from headtohead.plugins.launcher import machine_memory
from headtohead.plugins.masking import Masking
from headtohead.plugins.registry import current
from headtohead.schema.run_config import BeamConfig, RunConfig
from headtohead.storage.results import VocabularyRecord
from headtohead.storage.run import CHECKPOINT, RUN, VOCABULARY, RunRecord
from headtohead.storage.run_directory import RunDirectory, find_run
from headtohead.training import checkpoint
from headtohead.training.maps import SentenceMaps, probe_maps

NO_TRANSLATION = {
    "none": "its recipe defines no decoding (evaluate.decode: none): without <sos> and <eos> "
    "generation has no start and no stop",
    "teacher-forced": "it decodes from the reference (evaluate.decode: teacher-forced), which a new sentence lacks",
}
"""Reasons why a run cannot translate, by the value of ``evaluate.decode``."""


@dataclass(frozen=True)
class LoadedRun:
    """A model with its vocabularies, in evaluation mode on the CPU.

    Attributes:
        path: The run directory.
        config: The complete configuration.
        model: The torch module. All its tensors have a leading member dimension, which is 1 in a loaded run.
            `logits`, `translate`, `generate` and `attention` add and remove this dimension.
        words: Vocabularies; None for a checkpoint that was imported without them, which accepts ids only.
        record: The run's record.
    """

    path: Path
    config: RunConfig
    model: Transformer
    words: PreparedData | None
    record: RunRecord

    @property
    def decoding_limit(self) -> int:
        """Maximum number of tokens of a translation; 0 for a checkpoint without vocabularies."""
        return self.record.decoding_limit

    @property
    def imported(self) -> bool:
        """Whether the weights are an imported checkpoint."""
        return self.record.imported is not None

    @property
    def positions(self) -> int | None:
        """Number of rows of an imported checkpoint's positional table, if it has such a table."""
        return self.record.imported.positions if self.record.imported else None

    @property
    def data(self) -> PreparedData:
        """Vocabularies and tokenisers.

        Raises:
            HeadToHeadError: If the run has no vocabularies.
        """
        if self.words is None:
            raise HeadToHeadError(
                f"run '{self.path.name}' has no vocabularies; repeat h2h "
                "import-checkpoint with --data and the file of sentence pairs it was trained on"
            )
        return self.words

    @property
    def tokenizer(self) -> Tokenizer:
        """The conversion of text to ids and back.

        Raises:
            HeadToHeadError: If the run has no vocabularies.
        """
        return Tokenizer(self.data)

    @property
    def pitfalls(self) -> list[str]:
        """Names of the settings that make this run's results less meaningful than they appear."""
        return [pitfall.name for pitfall in self.record.pitfalls]

    @property
    def can_translate(self) -> bool:
        """Whether `translate` accepts sentences."""
        return self.words is not None and self.config.evaluate.decode not in NO_TRANSLATION

    def logits(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        """Return the logits ``[batch, time, vocab]`` of the token after each target token.

        Padding is masked by its id at any position, as in the notebooks.

        Args:
            source_ids: ``[batch, time]`` with boundary tokens and padding, usually on the right.
            target_ids: ``[batch, time]`` with padding; starts with <sos> if the vocabulary has it.
        """
        self._refuse_long(max(source_ids.shape[-1], target_ids.shape[-1]))
        source, target = source_ids.unsqueeze(0), target_ids.unsqueeze(0)
        with torch.no_grad(), products_of(self.model), self._masked(source_ids, target_ids):
            lengths = self._lengths(source), self._lengths(target)
            logits: Tensor = self.model(source, lengths[0], target, lengths[1])[0]
        return logits

    def translate(self, sentences: Sequence[str], beam: BeamConfig | None = None) -> list[str]:
        """Return the translation of each sentence, in normalised text.

        Args:
            sentences: Raw text. A translation does not depend on the other sentences.
            beam: Beam search settings; default: the decoding of the run's evaluation.

        Raises:
            HeadToHeadError: If the run cannot translate, or its vocabulary refuses a word.
        """
        if isinstance(sentences, str):
            raise HeadToHeadError("translate takes a list of sentences, got one string")
        self._refuse_undefined()
        encoded = [self.data.tokenise(sentence, "source") for sentence in sentences]
        with products_of(self.model):
            return [self.data.target_vocabulary.decode(ids) for ids in self._generate(encoded, beam)]

    def generate(self, source_ids: Sequence[int], beam: BeamConfig | None = None) -> list[int]:
        """Return the generated target ids of a single source.

        Stepwise decoding stops before <eos> or after ``decoding_limit`` tokens. Non-autoregressive decoding, whose
        decoder input is zeros, omits the id 0 from the result.

        Raises:
            HeadToHeadError: If the run cannot translate, or lacks <sos> or <eos>.
        """
        self._refuse_undefined()
        with products_of(self.model):
            return self._generate([source_ids], beam)[0]

    def attention(self, source: str, target: str | None = None) -> SentenceMaps:
        """Return the attention maps of every layer, head and role for a sentence.

        The decoder input is ``target``; default: the run's own translation.
        """
        return probe_maps(self.model, self.data, source, target, self.decoding_limit, "given")[0]

    def unknown_words(self, sentence: str) -> list[str]:
        """Return the words of a sentence that the run's source vocabulary lacks, in order."""
        words = self.data.tokenisers["source"].words(sentence)
        return [word for word in words if word not in self.data.source_vocabulary]

    def _refuse_undefined(self) -> None:
        reason = NO_TRANSLATION.get(self.config.evaluate.decode)
        if reason:
            raise HeadToHeadError(f"run '{self.path.name}' cannot translate: {reason}")

    def _refuse_long(self, tokens: int) -> None:
        if self.positions is not None and tokens > self.positions:
            raise HeadToHeadError(
                f"a sentence of {tokens} tokens exceeds the {self.positions} positions of "
                f"the checkpoint of run '{self.path.name}'; shorten it"
            )

    def _generate(self, encoded: Sequence[Sequence[int]], beam: BeamConfig | None) -> list[list[int]]:
        """Return the generated ids of each source, independent of the other sources."""
        for ids in encoded:
            self._refuse_long(len(ids))
        if beam is not None and self.config.evaluate.decode == "non-autoregressive":
            raise HeadToHeadError(
                f"run '{self.path.name}' decodes all words in a single pass "
                "(evaluate.decode: non-autoregressive), which has no beam; remove the beam"
            )
        if self.config.evaluate.decode == "non-autoregressive":
            return [self._decode_non_autoregressive(torch.tensor([list(ids)])) for ids in encoded]
        beam = beam or self.config.evaluate.beam
        translations = translate_each(self.model, encoded, self.decoding_limit, beam, *self._ends)
        pad = self._pad
        if pad is None or not self.imported:
            return [[index for index in ids if index != pad] for ids in translations]
        return [
            # The decoding cache does not support padding inside a sentence; without such padding it is exact.
            self._greedy_by_id(torch.tensor([list(source)])) if beam is None and (pad in ids or pad in source) else ids
            for source, ids in zip(encoded, translations, strict=True)
        ]

    @torch.no_grad()
    def _decode_non_autoregressive(self, source: Tensor) -> list[int]:
        """Decode in a single pass; the decoder input has as many zeros as the source has tokens."""
        ids = source.unsqueeze(0)
        lengths = self._lengths(ids)
        logits = self.model(ids, lengths, torch.zeros_like(ids), lengths)
        return [index for index in logits[0, 0].argmax(-1).tolist() if index != 0]

    @torch.no_grad()
    def _greedy_by_id(self, source: Tensor) -> list[int]:
        """Decode a sentence greedily and mask padding ids at any position."""
        sos, eos = self._ends
        lengths = self._lengths(source.unsqueeze(0))
        with self._masked(source, source):
            memory = self.model.encode(source.unsqueeze(0), lengths)
        decoded = [sos]
        while len(decoded) <= self.decoding_limit and decoded[-1] != eos:
            target = torch.tensor([decoded])
            target_lengths = self._lengths(target.unsqueeze(0))
            with self._masked(source, target):
                hidden = self.model.decode(target.unsqueeze(0), target_lengths, memory, lengths)
            decoded.append(int(self.model.project(hidden[:, :, -1:])[0, 0, 0].argmax()))
        return _until(decoded[1:], eos)

    @property
    def _ends(self) -> tuple[int, int]:
        vocabulary = self.data.target_vocabulary
        if vocabulary.sos is None or vocabulary.eos is None:
            raise HeadToHeadError(
                f"run '{self.path.name}' cannot translate: its target vocabulary lacks <sos> or <eos>"
            )
        return vocabulary.sos, vocabulary.eos

    @property
    def _pad(self) -> int | None:
        """The id of padding; without vocabularies, that of the notebooks."""
        return PAD if self.words is None else self.words.source_vocabulary.pad

    def _lengths(self, ids: Tensor) -> Tensor:
        """Return the number of tokens without padding, ``[member, batch]``."""
        if self._pad is None:
            return torch.full(ids.shape[:-1], ids.shape[-1])
        return (ids != self._pad).sum(-1)

    @contextmanager
    def _masked(self, source: Tensor, target: Tensor) -> Iterator[None]:
        """Mask padding by its id during the block if it occurs elsewhere than on the right."""
        if self._pad is None or not (_scattered(source, self._pad) or _scattered(target, self._pad)):
            yield
            return
        memory = source if self.model.attends_to_source else target
        keys = {"encoder": source, "decoder": target, "cross": memory}
        original = dict(self.model.maskings)
        try:
            for role, ids in keys.items():
                self.model.maskings[role] = _MaskPaddingById(original[role], ids != self._pad)
            yield
        finally:
            self.model.maskings.update(original)

    def __repr__(self) -> str:
        return f"LoadedRun({str(self.path)!r})"


class _MaskPaddingById(Masking):
    """Wraps a masking scheme and masks padding by its id instead of by length."""

    def __init__(self, inner: Masking, live: Tensor) -> None:
        super().__init__(inner.options)
        self.inner, self.live = inner, live

    def mask(self, role: str, query_positions: Tensor, key_positions: Tensor, lengths: Tensor) -> Tensor | None:
        full = torch.full_like(lengths, len(key_positions))
        mask = self.inner.mask(role, query_positions, key_positions, full)
        role_properties = self.inner.role_properties(role)
        if role_properties is not None and "hides-padding" not in role_properties:
            return mask
        live = self.live[:, None, key_positions].expand(-1, len(query_positions), -1)
        return live if mask is None else live & mask


def _until(ids: list[int], end: int) -> list[int]:
    return ids[: ids.index(end)] if end in ids else ids


def _scattered(ids: Tensor, pad: int) -> bool:
    """Return whether a token follows padding."""
    live = ids != pad
    return bool((live[:, 1:] & ~live[:, :-1]).any())


def load(run: Path | str, runs: Path | None = None, dtype: torch.dtype | None = None) -> LoadedRun:
    """Load a finished run, an imported checkpoint, or an exported model.

    Args:
        run: The run's directory, its name, or an unambiguous prefix of its name; or the folder of an exported model.
        runs: The folder of run directories, for lookup by name.
        dtype: Type of the weights; default: the run's own precision.

    Raises:
        HeadToHeadError: If the run does not exist, is not DONE, or has a damaged checkpoint.
    """
    if is_exported(Path(run)):
        path = Path(run)
        exported = read_exported(path)
        record, words, sizes, weights = exported.record, exported.words, exported.sizes, path / WEIGHTS
        config = recorded_config(record.config, current(), path.name)
    else:
        path = find_run(run, runs_folder(given=runs))
        directory = RunDirectory(path)
        directory.require_done()
        record = directory.record
        config = recorded_config(record.config, current(), path.name)
        if record.imported:
            words = _imported_words(directory, config, record)
            sizes = record.imported.words["source"], record.imported.words["target"]
        else:
            words = _prepared(path, config, record)
            sizes = len(words.source_vocabulary), len(words.target_vocabulary)
        weights = directory.verified(CHECKPOINT)
    tensors = checkpoint.load_weights(weights, _expected_weights(config, sizes, path))
    model = Transformer(config, [1], *sizes)
    if config.train.precision == "float64":
        model.double()
    if dtype is not None:
        model.to(dtype)
    model.load_member(0, tensors)
    return LoadedRun(path, config, model.eval(), words, record)


def _expected_weights(config: RunConfig, sizes: tuple[int, int], path: Path) -> dict[str, Tensor]:
    """Return the weights of a run by name on the device ``meta``, which allocates no memory.

    Raises:
        HeadToHeadError: If the model does not fit into the memory of this machine.
    """
    try:
        model = Transformer(config, None, *sizes)
        tensors = [*model.parameters(), *model.buffers()]
        fits = sum(tensor.numel() * tensor.element_size() for tensor in tensors) <= machine_memory()
    except RuntimeError:  # a tensor of more than 2**63 bytes
        fits = False
    if not fits:
        raise HeadToHeadError(
            f"the model of '{path / RUN}' does not fit into the memory of this machine; if its sizes are wrong, "
            "restore the file, or move its folder away"
        )
    return {name: weights[0] for name, weights in model.state_dict().items()}


def _prepared(path: Path, config: RunConfig, record: RunRecord) -> PreparedData:
    data = prepare(config.data, cache_root())
    recorded = record.data["data_hash"]
    if recorded != data.data_hash:
        raise HeadToHeadError(
            f"the data of run '{path.name}' has changed (data_hash {recorded[:8]}, now "
            f"{data.data_hash[:8]}); restore the file it was trained on"
        )
    return data


def _imported_words(run: RunDirectory, config: RunConfig, record: RunRecord) -> PreparedData | None:
    """Return the stored vocabularies of an imported run; None if it has none."""
    file = run.path / VOCABULARY
    stored = run.verified_record(VocabularyRecord, VOCABULARY)
    if stored.source is None or stored.target is None:
        return None
    unknown = config.data.vocabulary.unknown
    source, target = (Vocabulary(list(words), unknown=unknown) for words in (stored.source, stored.target))
    rows: Mapping[str, Any] = dict(record.imported.words) if record.imported else {}
    for side, vocabulary in (("source", source), ("target", target)):
        if len(vocabulary) > rows[side]:
            raise HeadToHeadError(
                f"'{file}' has {len(vocabulary)} {side} words, the checkpoint {rows[side]}; repeat h2h "
                "import-checkpoint"
            )
    data_hash = record.data["data_hash"]
    tokenisers = tokenisers_of(config.data)
    return PreparedData(source, target, {}, dict(record.data), data_hash, tokenisers)
