"""A finished run, loaded: translate with it, look at its attention, take its logits."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import torch
from torch import Tensor

from headtohead.data import PreparedData, cache_root, prepare
from headtohead.data.vocabulary import UNK
from headtohead.errors import HeadToHeadError, nearest
from headtohead.experiment.schema import RunConfig
from headtohead.model.decoding import greedy
from headtohead.model.transformer import Transformer
from headtohead.runs import files, states
from headtohead.runs.directory import RunDirectory
from headtohead.training import checkpoint
from headtohead.training.maps import ProbeMaps, probe_maps


@dataclass(frozen=True)
class LoadedRun:
    """A trained model with its data's vocabularies, in evaluation mode on the CPU."""

    path: Path
    config: RunConfig
    data: PreparedData
    model: Transformer

    def logits(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        """Return logits ``[batch, time, vocab]`` of the token after each target token.

        Args:
            source_ids: ``[batch, time]``, <eos> included, padding (0) on the right.
            target_ids: ``[batch, time]``, starting with <sos>, padding on the right.
        """
        source, target = source_ids.unsqueeze(0), target_ids.unsqueeze(0)
        with torch.no_grad():
            return self.model(source, (source != 0).sum(-1), target, (target != 0).sum(-1))[0]  # type: ignore[no-any-return]

    def translate(self, sentences: Sequence[str]) -> list[str]:
        """Return a greedy translation of each sentence, in the words of its normalisation."""
        if isinstance(sentences, str):
            raise HeadToHeadError("translate takes a list of sentences, got one string")
        encoded = [self.data.tokenise(sentence, "source") for sentence in sentences]
        if not encoded:
            return []
        source = torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(ids) for ids in encoded], batch_first=True
        ).unsqueeze(0)
        lengths = torch.tensor([[len(ids) for ids in encoded]])
        ids = greedy(self.model, source, lengths, self.longest)[0].tolist()
        return [self.data.target_vocabulary.decode([i for i in row if i]) for row in ids]

    def attention(self, source: str, target: str | None = None) -> ProbeMaps:
        """Return the weights of every layer, head and role for one sentence.

        Without a target the run's own translation is read.
        """
        return probe_maps(self.model, 0, self.data, source, target, self.longest, "given")

    def unknown_words(self, sentence: str) -> list[str]:
        """Return the words of a sentence that the run's source vocabulary lacks, in order."""
        words = self.data.tokenisers["source"].words(sentence)
        ids = self.data.source_vocabulary.encode(words)
        return [word for word, index in zip(words, ids, strict=True) if index == UNK]

    @property
    def longest(self) -> int:
        """Most words of a translation, as in the run's own evaluation."""
        asked = self.config.evaluate.max_length
        return asked or max(4, (self.data.record["longest"]["target"] - 1) * 3 // 2)

    def _repr_html_(self) -> str:
        record = RunDirectory(self.path).record
        metrics = files.read_json(self.path / "results.json")["metrics"]
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{value:.4g}</td></tr>"
            for name, value in metrics.items()
            if name.startswith("test/")
        )
        return f"<b>{escape(record['title'])}, seed {record['seed']}</b><table>{rows}</table>"


def load(run: Path | str, runs: Path | None = None) -> LoadedRun:
    """Load a finished run.

    Args:
        run: Its directory, or the directory's name (a beginning that fits one run is enough).
        runs: The folder of run directories that a name is looked up in.

    Raises:
        HeadToHeadError: If there is no such run, it is not done, or its checkpoint is damaged.
    """
    path = find_run(run, runs or Path(os.environ.get("H2H_RUNS", "runs")))
    directory = RunDirectory(path)
    if directory.state != states.DONE:
        raise HeadToHeadError(
            f"run '{path.name}' is {directory.state}, not DONE; it has no weights"
        )
    config = RunConfig.model_validate(directory.record["config"])
    data = prepare(config.data, cache_root())
    recorded = directory.record["data"]["fingerprint"]
    if recorded != data.fingerprint:
        raise HeadToHeadError(
            f"the data of run '{path.name}' has changed since (fingerprint {recorded[:8]}, now "
            f"{data.fingerprint[:8]}); restore the file that it was trained on"
        )
    model = Transformer(config, [1], len(data.source_vocabulary), len(data.target_vocabulary))
    weights, _ = checkpoint.load(path / "checkpoint.safetensors")
    if config.train.precision == "float64":
        model.double()
    checkpoint.load_members(model, [weights])
    return LoadedRun(path, config, data, model.eval())


def find_run(run: Path | str, runs: Path) -> Path:
    """Return the directory of a run given as a path, a name, or the beginning of a name."""
    path = Path(run)
    if (path / "run.json").is_file():
        return path
    names = {found.parent.name: found.parent for found in runs.glob("*/*/run.json")}
    matching = [names[name] for name in sorted(names) if name.startswith(str(run))]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise HeadToHeadError(
            f"'{run}' fits {len(matching)} runs, for example {matching[0].name} and "
            f"{matching[1].name}; give more of the name"
        )
    raise HeadToHeadError(f"no run '{run}' in '{runs}'{nearest(str(run), names)}")
