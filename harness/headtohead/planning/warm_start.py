"""Warm starts: find the run that ``init_from`` names, and check that its weights fit each variant."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from headtohead.config.loading import LoadedExperiment
from headtohead.config.source_location import shown
from headtohead.data import PreparedData
from headtohead.data.tokeniser import SIDES
from headtohead.errors import HeadToHeadError
from headtohead.model.transformer import Transformer
from headtohead.planning.variants import Variant
from headtohead.schema.run_config import INIT_FROM, InitFrom, RunConfig
from headtohead.storage.results import VocabularyRecord
from headtohead.storage.run import CHECKPOINT, VOCABULARY, read_status
from headtohead.storage.run_directory import RunDirectory, find_run


@dataclass(frozen=True)
class InitialRun:
    """A finished run: its reference, its checkpoint with type and shape by parameter name, and its vocabularies."""

    reference: str
    checkpoint: Path
    sha256: str
    weights: Mapping[str, str]
    vocabulary: VocabularyRecord
    data_hash: str


class WarmStarts:
    """Finds the runs of ``init_from``, each once; ``data_of`` returns the prepared data of a configuration."""

    def __init__(self, runs: Path, data_of: Callable[[RunConfig], PreparedData]) -> None:
        self.runs = runs
        self.data_of = data_of
        self.found: dict[str, InitialRun] = {}
        self._other_data: set[str] = set()

    @property
    def notes(self) -> list[str]:
        """Notes on what the results of warm starts depend on."""
        start = "every seed starts from the weights of {}; seeds change only the order of batches and dropout"
        data = "{} was trained on other data, which may contain test sentences of this experiment"
        references = [run.reference for run in self.found.values()]
        return [
            *map(start.format, references),
            *(data.format(name) for name in references if name in self._other_data),
        ]

    def apply(self, loaded: LoadedExperiment, variants: Sequence[Variant]) -> tuple[Variant, ...]:
        """Return the variants with the sha256 of their initial weights.

        Raises:
            HeadToHeadError: If a run does not exist, is not DONE, or does not fit a variant, with the location in the
                file.
        """
        return tuple(
            self._warm(loaded, variant, variant.config.init_from)
            if variant.config.init_from
            else variant
            for variant in variants
        )

    def _warm(self, loaded: LoadedExperiment, variant: Variant, init_from: InitFrom) -> Variant:
        candidates = [
            (option.value, option.location)
            for option in loaded.overrides
            if option.path == (INIT_FROM,)
        ]
        for name in ("baseline", "base"):
            candidates.append(
                (getattr(loaded.file, name).get(INIT_FROM), loaded.location(name, INIT_FROM))
            )
        location = next(
            (location for run, location in candidates if run == init_from.run),
            loaded.location("design"),
        )
        try:
            if init_from.run not in self.found:
                self.found[init_from.run] = self._find(init_from.run, loaded.name)
            run = self.found[init_from.run]
            data = self.data_of(variant.config)
            _refuse_vocabulary(run, data)
            _refuse_shapes(run, variant, data)
        except HeadToHeadError as error:
            raise location.error(str(error)) from error
        except OSError as error:
            raise location.error(
                f"cannot read run {shown(init_from.run)}: {error.strerror}"
            ) from error
        if data.data_hash != run.data_hash:
            self._other_data.add(run.reference)
        update = {INIT_FROM: InitFrom(run=run.reference, weights=run.sha256)}
        return replace(variant, config=variant.config.model_copy(update=update))

    def _find(self, name: str, experiment: str) -> InitialRun:
        path = find_run(name, self.runs)
        if path.resolve().parent == (self.runs / experiment).resolve():
            raise HeadToHeadError(
                f"'{name}' is a run of this experiment; copy the file under another name"
            )
        run = RunDirectory(path, known=read_status(path))
        run.require_done()
        checkpoint, sha256 = run.verified(CHECKPOINT), run.status.files[CHECKPOINT]
        for other, known in self.found.items():
            if known.sha256 == sha256:
                raise HeadToHeadError(
                    f"'{name}' and '{other}' are the same run; keep one of these names"
                )
        return InitialRun(
            reference=f"{path.resolve().parent.name}/{path.resolve().name}",
            checkpoint=checkpoint,
            sha256=sha256,
            weights=_read_weights(checkpoint, name),
            vocabulary=run.verified_record(VocabularyRecord, VOCABULARY),
            data_hash=run.record.data["data_hash"],
        )


def _read_weights(checkpoint: Path, name: str) -> dict[str, str]:
    """Return type and shape of the weights of the run ``name``."""
    weights = {}
    try:
        with safe_open(checkpoint, framework="pt") as file:
            for key in file.keys():  # noqa: SIM118
                weights[key] = _described(values := file.get_tensor(key))
                if not bool(torch.isfinite(values).all()):
                    raise HeadToHeadError(
                        f"run '{name}': '{key}' has values that are not finite; use another run"
                    )
    except SafetensorError as error:
        raise HeadToHeadError(
            f"'{checkpoint}' is no safetensors file; make it a run with h2h import-checkpoint, or use another run"
        ) from error
    return weights


def _described(values: Tensor, members: int = 0) -> str:
    """Return the kind of number and the shape of a tensor, without axes of members."""
    return f"{'float' if values.is_floating_point() else 'int'} {list(values.shape[members:])}"


def _refuse_vocabulary(run: InitialRun, data: PreparedData) -> None:
    for side in reversed(SIDES):  # a text has no sources
        there = run.vocabulary.source if side == "source" else run.vocabulary.target
        here = data.vocabulary(side).words
        if there is None:
            raise HeadToHeadError(
                f"run '{run.reference}' has no vocabularies; repeat h2h import-checkpoint with --data and the file of "
                "sentence pairs it was trained on"
            )
        pairs = enumerate(zip_longest(map(repr, there), map(repr, here), fillvalue="missing"))
        if differing := next(
            ((number, *pair) for number, pair in pairs if pair[0] != pair[1]), None
        ):
            number, old, new = differing
            raise HeadToHeadError(
                f"the {side} vocabulary is not that of run '{run.reference}': token {number} is {old} there and "
                f"{new} here; use the data of that run, or the same data.vocabulary.file in both experiments"
            )


def _refuse_shapes(run: InitialRun, variant: Variant, data: PreparedData) -> None:
    sizes = len(data.source_vocabulary), len(data.target_vocabulary)
    state = Transformer(variant.config, None, *sizes).state_dict()
    expected = {name: _described(values, members=1) for name, values in state.items()}
    for name in (*expected, *run.weights):
        there, here = run.weights.get(name, "missing"), expected.get(name, "missing")
        if there != here:
            raise HeadToHeadError(
                f"variant '{variant.slug}' cannot start from run '{run.reference}': '{name}' is {there} there and "
                f"{here} here; use the sizes and plugins of that run, or exclude the variant"
            )
