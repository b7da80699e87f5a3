"""A finished run, loaded: translate with it, look at its attention, take its logits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from headtohead import files
from headtohead.config.project import runs_folder
from headtohead.config.versions import refuse_unregistered
from headtohead.data import PreparedData, cache_root, prepare
from headtohead.data.vocabulary import PAD, Vocabulary
from headtohead.errors import HeadToHeadError, nearest
from headtohead.execution.import_checkpoint import tokenisers_of
from headtohead.model.grouping import translate_each
from headtohead.model.transformer import Transformer
from headtohead.plugins.masking import Masking
from headtohead.plugins.registry import current
from headtohead.schema.run_config import BeamConfig, RunConfig
from headtohead.storage import states
from headtohead.storage.records import RUN, RunRecord
from headtohead.storage.run_directory import RunDirectory
from headtohead.training import checkpoint
from headtohead.training.maps import SentenceMaps, probe_maps

UNDEFINED = {
    "none": "its recipe defines no decoding (evaluate.decode: none): without <sos> and <eos> "
    "generation has no start and no stop",
    "teacher-forced": "it decodes from the reference (evaluate.decode: teacher-forced), which a new sentence lacks",
}
"""Why some runs cannot translate."""


@dataclass(frozen=True)
class LoadedRun:
    """A model with its vocabularies, in evaluation mode on the CPU.

    ``words`` is None for a checkpoint imported without its vocabularies, which knows ids alone.
    ``positions`` are the rows of the table of an imported checkpoint, if it has one.
    ``decoding_limit`` is the maximum number of tokens of a translation, as the run's record has it;
    0 for a checkpoint without vocabularies.
    """

    path: Path
    config: RunConfig
    model: Transformer
    words: PreparedData | None
    decoding_limit: int
    imported: bool = False
    positions: int | None = None

    @property
    def data(self) -> PreparedData:
        """Vocabularies, and how text becomes ids.

        Raises:
            HeadToHeadError: If the run works on ids alone.
        """
        if self.words is None:
            raise HeadToHeadError(
                f"run '{self.path.name}' works on ids alone: it has no vocabularies; type h2h "
                "import again with --data and the sentences that it was trained on"
            )
        return self.words

    @property
    def pitfalls(self) -> list[str]:
        """Names of the choices that make this run's results mean less than they seem to."""
        return [pitfall.name for pitfall in RunDirectory(self.path).record.pitfalls]

    def logits(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        """Return logits ``[batch, time, vocab]`` of the token after each target token.

        Padding is masked wherever it stands, as in the notebooks, whose masks ask for the id.

        Args:
            source_ids: ``[batch, time]``, boundary tokens included, padding as a rule on the right.
            target_ids: ``[batch, time]``, starting with <sos> where there is one, likewise.
        """
        self._refuse_long(max(source_ids.shape[-1], target_ids.shape[-1]))
        source, target = source_ids.unsqueeze(0), target_ids.unsqueeze(0)
        with torch.no_grad(), self._masked(source_ids, target_ids):
            lengths = self._lengths(source), self._lengths(target)
            logits: Tensor = self.model(source, lengths[0], target, lengths[1])[0]
        return logits

    def translate(self, sentences: Sequence[str], beam: BeamConfig | None = None) -> list[str]:
        """Return the run's own translation of each sentence, in the words of its normalisation.

        Args:
            sentences: Raw text; each is translated as it would be alone.
            beam: A beam to search instead of what the run does in its evaluation.

        Raises:
            HeadToHeadError: If the run does not translate, or refuses a word.
        """
        if isinstance(sentences, str):
            raise HeadToHeadError("translate takes a list of sentences, got one string")
        self._refuse_undefined()
        encoded = [self.data.tokenise(sentence, "source") for sentence in sentences]
        return [self.data.target_vocabulary.decode(ids) for ids in self._generate(encoded, beam)]

    def generate(self, source_ids: Sequence[int], beam: BeamConfig | None = None) -> list[int]:
        """Return the ids that one source becomes, alone in its batch: word by word, or over zeros.

        Word by word, it stops before <eos>, or after ``decoding_limit`` tokens. Over zeros, the id
        0 is left out.

        Raises:
            HeadToHeadError: If the run does not translate, or lacks <sos> or <eos>.
        """
        self._refuse_undefined()
        return self._generate([source_ids], beam)[0]

    def attention(self, source: str, target: str | None = None) -> SentenceMaps:
        """Return the weights of every layer, head and role for one sentence.

        Without a target the run's own translation is read.
        """
        return probe_maps(self.model, 0, self.data, source, target, self.decoding_limit, "given")

    def unknown_words(self, sentence: str) -> list[str]:
        """Return the words of a sentence that the run's source vocabulary lacks, in order."""
        words = self.data.tokenisers["source"].words(sentence)
        return [word for word in words if self.data.source_vocabulary.lacks(word)]

    def _refuse_undefined(self) -> None:
        reason = UNDEFINED.get(self.config.evaluate.decode)
        if reason:
            raise HeadToHeadError(f"run '{self.path.name}' cannot translate: {reason}")

    def _refuse_long(self, tokens: int) -> None:
        if self.positions is not None and tokens > self.positions:
            raise HeadToHeadError(
                f"a sentence of {tokens} tokens is longer than the table of {self.positions} "
                f"positions that the checkpoint of run '{self.path.name}' has"
            )

    def _generate(self, encoded: Sequence[Sequence[int]], beam: BeamConfig | None) -> list[list[int]]:
        """Return the ids that each source becomes, as it would alone."""
        for ids in encoded:
            self._refuse_long(len(ids))
        if beam is not None and self.config.evaluate.decode == "non-autoregressive":
            raise HeadToHeadError(
                f"run '{self.path.name}' writes all words in one pass over zeros "
                "(evaluate.decode: non-autoregressive), where there is no beam to search; leave it out"
            )
        if self.config.evaluate.decode == "non-autoregressive":
            return [self._over_zeros(torch.tensor([list(ids)])) for ids in encoded]
        beam = beam or self.config.evaluate.beam
        written = translate_each(self.model, encoded, self.decoding_limit, beam, *self._ends)
        pad = self._pad
        if pad is None or not self.imported:
            return [[index for index in ids if index != pad] for ids in written]
        return [
            # The cache knows no padding inside: where none is read or written, it is exact.
            self._greedy_by_id(torch.tensor([list(source)])) if beam is None and (pad in ids or pad in source) else ids
            for source, ids in zip(encoded, written, strict=True)
        ]

    @torch.no_grad()
    def _over_zeros(self, source: Tensor) -> list[int]:
        """Write in one pass; the zeros that the decoder reads are as live as its source."""
        ids = source.unsqueeze(0)
        lengths = self._lengths(ids)
        logits = self.model(ids, lengths, torch.zeros_like(ids), lengths)
        return [index for index in logits[0, 0].argmax(-1).tolist() if index != 0]

    @torch.no_grad()
    def _greedy_by_id(self, source: Tensor) -> list[int]:
        """Decode one sentence; what is padding by its id is masked, wherever it stands."""
        sos, eos = self._ends
        lengths = self._lengths(source.unsqueeze(0))
        with self._masked(source, source):
            memory = self.model.encode(source.unsqueeze(0), lengths)
        written = [sos]
        while len(written) <= self.decoding_limit and written[-1] != eos:
            target = torch.tensor([written])
            live = self._lengths(target.unsqueeze(0))
            with self._masked(source, target):
                hidden = self.model.decode(target.unsqueeze(0), live, memory, lengths)
            written.append(int(self.model.project(hidden[:, :, -1:])[0, 0, 0].argmax()))
        return _until(written[1:], eos)

    @property
    def _ends(self) -> tuple[int, int]:
        vocabulary = self.data.target_vocabulary
        if vocabulary.sos is None or vocabulary.eos is None:
            raise HeadToHeadError(
                f"run '{self.path.name}' cannot translate: its target vocabulary has no <sos> and "
                "<eos> to start and stop with"
            )
        return vocabulary.sos, vocabulary.eos

    @property
    def _pad(self) -> int | None:
        """The id of padding; that of the notebooks where no vocabulary says another."""
        return PAD if self.words is None else self.words.source_vocabulary.pad

    def _lengths(self, ids: Tensor) -> Tensor:
        """Count live tokens, ``[member, batch]``; all of them where there is no padding."""
        if self._pad is None:
            return torch.full(ids.shape[:-1], ids.shape[-1])
        return (ids != self._pad).sum(-1)

    @contextmanager
    def _masked(self, source: Tensor, target: Tensor) -> Iterator[None]:
        """Mask padding by its id for one pass, where it stands elsewhere than on the right."""
        if self._pad is None or not (_scattered(source, self._pad) or _scattered(target, self._pad)):
            yield
            return
        read = source if self.model.attends_to_source else target
        sides = {"encoder": source, "decoder": target, "cross": read}
        kept = dict(self.model.maskings)
        try:
            for role, ids in sides.items():
                self.model.maskings[role] = _ById(kept[role], ids != self._pad)
            yield
        finally:
            self.model.maskings.update(kept)

    def __repr__(self) -> str:
        return f"LoadedRun({str(self.path)!r})"


class _ById(Masking):
    """A masking scheme whose padding is where the ids say, not what stands beyond a length."""

    def __init__(self, inner: Masking, live: Tensor) -> None:
        super().__init__(inner.options)
        self.inner, self.live = inner, live

    def mask(self, role: str, query_positions: Tensor, key_positions: Tensor, lengths: Tensor) -> Tensor | None:
        full = torch.full_like(lengths, len(key_positions))
        kept = self.inner.mask(role, query_positions, key_positions, full)
        role_properties = self.inner.role_properties(role)
        if role_properties is not None and "hides-padding" not in role_properties:
            return kept
        live = self.live[:, None, key_positions].expand(-1, len(query_positions), -1)
        return live if kept is None else live & kept


def _until(ids: list[int], end: int) -> list[int]:
    return ids[: ids.index(end)] if end in ids else ids


def _scattered(ids: Tensor, pad: int) -> bool:
    """Tell whether a live token stands behind padding."""
    live = ids != pad
    return bool((live[:, 1:] & ~live[:, :-1]).any())


def load(run: Path | str, runs: Path | None = None, dtype: torch.dtype | None = None) -> LoadedRun:
    """Load a finished run, or an imported checkpoint.

    Args:
        run: Its directory, or the directory's name (a beginning that fits one run is enough).
        runs: The folder of run directories that a name is looked up in.
        dtype: Of the weights; default: the run's own precision.

    Raises:
        HeadToHeadError: If there is no such run, it is not done, or its checkpoint is damaged.
    """
    path = find_run(run, runs_folder(given=runs))
    directory = RunDirectory(path)
    if directory.state != states.DONE:
        raise HeadToHeadError(f"run '{path.name}' is {directory.state}, not DONE; it has no weights")
    record = directory.record
    config = RunConfig.model_validate(record.config)
    refuse_unregistered(config, current(), path.name)
    imported = record.imported
    words = _imported_words(path, config, record) if imported else _prepared(path, config, record)
    sizes = imported.words if imported else record.data["vocabulary"]
    model = Transformer(config, [1], sizes["source"], sizes["target"])
    weights, _ = checkpoint.load(path / "checkpoint.safetensors")
    if config.train.precision == "float64":
        model.double()
    if dtype is not None:
        model.to(dtype)
    checkpoint.load_members(model, [weights])
    rows = imported.positions if imported else None
    return LoadedRun(path, config, model.eval(), words, record.decoding_limit, imported is not None, rows)


def _prepared(path: Path, config: RunConfig, record: RunRecord) -> PreparedData:
    data = prepare(config.data, cache_root())
    recorded = record.data["data_hash"]
    if recorded != data.data_hash:
        raise HeadToHeadError(
            f"the data of run '{path.name}' has changed since (data_hash {recorded[:8]}, now "
            f"{data.data_hash[:8]}); restore the file that it was trained on"
        )
    return data


def _imported_words(path: Path, config: RunConfig, record: RunRecord) -> PreparedData | None:
    """Return the vocabularies that were stored with an imported run, without any sentences."""
    stored = files.read_json(path / "vocabulary.json")
    if stored["source"] is None:
        return None
    unknown = config.data.vocabulary.unknown
    source, target = (Vocabulary(stored[side], unknown=unknown) for side in ("source", "target"))
    data_hash = record.data["data_hash"]
    tokenisers = tokenisers_of(config.data)
    return PreparedData(source, target, {}, dict(record.data), data_hash, tokenisers)


def find_run(run: Path | str, runs: Path) -> Path:
    """Return the directory of a run given as a path, a name, or the beginning of a name."""
    path = Path(run)
    if (path / RUN).is_file():
        return path
    names = {found.parent.name: found.parent for found in runs.glob(f"*/*/{RUN}")}
    if str(run) in names:
        return names[str(run)]
    matching = [names[name] for name in sorted(names) if name.startswith(str(run))]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise HeadToHeadError(
            f"'{run}' fits {len(matching)} runs, for example {matching[0].name} and "
            f"{matching[1].name}; give more of the name"
        )
    raise HeadToHeadError(f"no run '{run}' in '{runs}'{nearest(str(run), names)}")
