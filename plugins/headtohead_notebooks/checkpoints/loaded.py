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
        words, unknown = (
            {"source": stored.source, "target": stored.target},
            config.data.vocabulary.unknown,
        )
        for side, rows in (
            ("source", record.imported.words["source"]),
            ("target", record.imported.words["target"]),
        ):
            if len(words[side]) > rows:
                raise HeadToHeadError(
                    f"'{run.path / VOCABULARY}' has {len(words[side])} {side} words, the checkpoint {rows}; repeat h2h "
                    "import-checkpoint"
                )
        vocabularies: dict[Side, Vocabulary] = {
            side: Vocabulary(list(words[side]), unknown) for side in SIDES
        }
        tokenisers = tokenisers_of(config.data, units_of(config.data), vocabularies)
        return PreparedData(tokenisers, {}, dict(record.data), record.data["data_hash"])

    @property
    def pad(self) -> int | None:
        return PAD if self.words is None else self.words.source_vocabulary.pad

    def logits(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        self._refuse_long(max(source_ids.shape[-1], target_ids.shape[-1]))
        with self._masked(source_ids, target_ids):
            return super().logits(source_ids, target_ids)

    def decode(self, encoded: Sequence[Sequence[int]]) -> list[list[int]]:
        for ids in encoded:
            self._refuse_long(len(ids))
        if self.config.evaluate.decode == "non-autoregressive" or self.pad is None:
            return super().decode(encoded)
        # The decoding cache does not support padding inside a sentence.
        return [self._greedy_by_id(torch.tensor([list(ids)])) for ids in encoded]

    def _refuse_long(self, tokens: int) -> None:
        positions = self.record.imported.positions if self.record.imported else None
        if positions is not None and tokens > positions:
            raise HeadToHeadError(
                f"a sentence of {tokens} tokens exceeds the {positions} positions of "
                f"the checkpoint of run '{self.path.name}'; shorten it"
            )

    @torch.no_grad()
    def _greedy_by_id(self, source: Tensor) -> list[int]:
        """Decode a sentence greedily and mask padding ids at any position."""
        sos, eos, _ = self.ends
        lengths = self.lengths(source.unsqueeze(0))
        with self._masked(source, source):
            memory = self.model.encode(source.unsqueeze(0), lengths)
        decoded = [sos]
        while len(decoded) <= self.decoding_limit:
            target = torch.tensor([decoded])
            with self._masked(source, target):
                hidden = self.model.decode(
                    target.unsqueeze(0), self.lengths(target.unsqueeze(0)), memory, lengths
                )
            decoded.append(int(self.model.project(hidden[:, :, -1:])[0, 0, 0].argmax()))
            if decoded[-1] == eos:
                return decoded[1:-1]
        return decoded[1:]

    @contextmanager
    def _masked(self, source: Tensor, target: Tensor) -> Iterator[None]:
        """Mask padding by its id during the block if it occurs elsewhere than on the right."""
        if self.pad is None or not (_scattered(source, self.pad) or _scattered(target, self.pad)):
            yield
            return
        memory = source if self.model.attends_to_source else target
        keys = {"encoder": source, "decoder": target, "cross": memory}
        original = dict(self.model.maskings)
        try:
            for role, ids in keys.items():
                self.model.maskings[role] = _MaskPaddingById(original[role], ids != self.pad)
            yield
        finally:
            self.model.maskings.update(original)


class _MaskPaddingById(Masking):
    """Wraps a masking scheme and masks padding by its id instead of by length."""

    def __init__(self, inner: Masking, live: Tensor) -> None:
        super().__init__(inner.options)
        self.inner, self.live = inner, live

    def mask(
        self, role: str, query_positions: Tensor, key_positions: Tensor, lengths: Tensor
    ) -> Tensor | None:
        full = torch.full_like(lengths, len(key_positions))
        mask = self.inner.mask(role, query_positions, key_positions, full)
        role_properties = self.inner.role_properties(role)
        if role_properties is not None and "hides-padding" not in role_properties:
            return mask
        live = self.live[:, None, key_positions].expand(-1, len(query_positions), -1)
        return live if mask is None else live & mask


def _scattered(ids: Tensor, pad: int) -> bool:
    """Return whether a token follows padding."""
    live = ids != pad
    return bool((live[:, 1:] & ~live[:, :-1]).any())
