"""Imported checkpoints as loaded runs: padding is masked by its id at any position, as in the notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from headtohead.data import PreparedData
from headtohead.data.tokeniser import SIDES, Side, tokenisers_of, units_of
from headtohead.data.vocabulary import PAD, Vocabulary
from headtohead.errors import HeadToHeadError
from headtohead.execution.loaded import LoadedRun
from headtohead.plugins.masking import Masking
from headtohead.schema.run_config import RunConfig
from headtohead.storage.results import VocabularyRecord
from headtohead.storage.run import VOCABULARY, RunRecord
from headtohead.storage.run_directory import RunDirectory


class ImportedRun(LoadedRun):
    """A notebook's checkpoint."""

    @classmethod
    def read_words(
        cls, run: RunDirectory, record: RunRecord, config: RunConfig
    ) -> PreparedData | None:
        """Return the stored vocabularies; None if there are none."""
        stored = run.verified_record(VocabularyRecord, VOCABULARY)
        if stored.source is None or stored.target is None or record.imported is None:
            return None
        words = {"source": stored.source, "target": stored.target}
        vocabularies: dict[Side, Vocabulary] = {}
        for side in SIDES:
            count = len(words[side])
            rows = record.imported.words[side]
            if count > rows:
                raise HeadToHeadError(
                    f"'{run.path / VOCABULARY}' has {count} {side} words, the checkpoint {rows}; repeat h2h "
                    "import-checkpoint"
                )
            unknown = config.data.vocabulary.unknown
            vocabularies[side] = Vocabulary(list(words[side]), unknown)
        tokenisers = tokenisers_of(config.data, units_of(config.data), vocabularies)
        return PreparedData(tokenisers, {}, dict(record.data), record.data["data_hash"])

    @property
    def pad(self) -> int | None:
        if self.words is None:
            return PAD
        return self.words.source_vocabulary.pad

    def logits(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        longest = max(source_ids.shape[-1], target_ids.shape[-1])
        self._refuse_long(longest)
        with self._masked(source_ids, target_ids):
            return super().logits(source_ids, target_ids)

    def decode(self, encoded: Sequence[Sequence[int]]) -> list[list[int]]:
        for ids in encoded:
            self._refuse_long(len(ids))
        if self.config.evaluate.decode == "non-autoregressive" or self.pad is None:
            return super().decode(encoded)
        # The decoding cache does not support padding inside a sentence.
        decoded = []
        for ids in encoded:
            source = torch.tensor([list(ids)])
            decoded.append(self._greedy_by_id(source))
        return decoded

    def _refuse_long(self, tokens: int) -> None:
        """Raise if a sentence has more tokens than the positional table of the checkpoint has rows."""
        if self.record.imported is None:
            return
        positions = self.record.imported.positions
        if positions is not None and tokens > positions:
            raise HeadToHeadError(
                f"a sentence of {tokens} tokens exceeds the {positions} positions of "
                f"the checkpoint of run '{self.path.name}'; shorten it"
            )

    @torch.no_grad()
    def _greedy_by_id(self, source: Tensor) -> list[int]:
        """Decode a sentence greedily and mask padding ids at any position."""
        sos, eos, _ = self.ends
        source_batch = source.unsqueeze(0)
        source_lengths = self.lengths(source_batch)
        with self._masked(source, source):
            memory = self.model.encode(source_batch, source_lengths)
        decoded = [sos]
        while len(decoded) <= self.decoding_limit:
            target = torch.tensor([decoded])
            batch = target.unsqueeze(0)
            lengths = self.lengths(batch)
            with self._masked(source, target):
                hidden = self.model.decode(batch, lengths, memory, source_lengths)
            last_position = hidden[:, :, -1:]
            logits = self.model.project(last_position)[0, 0, 0]
            token = int(logits.argmax())
            decoded.append(token)
            if token == eos:
                return decoded[1:-1]
        return decoded[1:]

    @contextmanager
    def _masked(self, source: Tensor, target: Tensor) -> Iterator[None]:
        """Mask padding by its id during the block if it occurs elsewhere than on the right."""
        pad = self.pad
        if pad is None or not (_scattered(source, pad) or _scattered(target, pad)):
            yield
            return
        memory = source if self.model.attends_to_source else target
        keys = {"encoder": source, "decoder": target, "cross": memory}
        original = dict(self.model.maskings)
        try:
            for role, ids in keys.items():
                live = ids != pad
                self.model.maskings[role] = _MaskPaddingById(original[role], live)
            yield
        finally:
            self.model.maskings.update(original)


class _MaskPaddingById(Masking):
    """Wraps a masking scheme and masks padding by its id instead of by length."""

    def __init__(self, inner: Masking, live: Tensor) -> None:
        super().__init__(inner.options)
        self.inner = inner
        self.live = live

    def mask(
        self, role: str, query_positions: Tensor, key_positions: Tensor, lengths: Tensor
    ) -> Tensor | None:
        full = torch.full_like(lengths, len(key_positions))
        mask = self.inner.mask(role, query_positions, key_positions, full)
        role_properties = self.inner.role_properties(role)
        if role_properties is not None and "hides-padding" not in role_properties:
            return mask
        live_keys = self.live[:, None, key_positions]
        live = live_keys.expand(-1, len(query_positions), -1)
        if mask is None:
            return live
        return live & mask


def _scattered(ids: Tensor, pad: int) -> bool:
    """Return whether a token follows padding."""
    live = ids != pad
    follows_padding = ~live[:, :-1]
    return bool((live[:, 1:] & follows_padding).any())
