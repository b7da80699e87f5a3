"""Costs of variants: parameters, FLOPs and steps, and the refusal of models that do not fit into memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from headtohead.config.entries import plugins_of, watched_entries
from headtohead.config.identity import run_identity
from headtohead.config.loading import LoadedExperiment
from headtohead.data import PreparedData
from headtohead.data.batches import make_batches
from headtohead.data.vocabulary import IGNORE_INDEX
from headtohead.model import counting
from headtohead.model.builder import build_components
from headtohead.model.plugin_errors import model_plugins, plugin_errors
from headtohead.model.quirks import decoder_input_lengths
from headtohead.planning.datasets import PreparedDataSets
from headtohead.planning.lengths import decoding_limit
from headtohead.planning.pitfalls import find_pitfalls, is_order_invariant, padding_has_no_effect
from headtohead.planning.schedule import decays_to_an_end, planned_steps
from headtohead.planning.validation import STEP_COST, evaluation_interval
from headtohead.planning.variants import Variant
from headtohead.plugins.launcher import gpu_memory, machine_memory
from headtohead.plugins.registry import Registered
from headtohead.schema.choices import PRECISIONS
from headtohead.schema.run_config import RunConfig
from headtohead.storage.experiment import ModelCounts, VariantRecord


@dataclass(frozen=True, eq=False)
class PlannedVariant:
    """A variant: its entry in ``experiment.json``, and what determines its runs."""

    record: VariantRecord
    identity: Mapping[str, Any]
    steps_per_epoch: int
    plugins: Sequence[Registered]
    """The entries that the configuration uses, with the present hashes of what they read."""

    @property
    def config(self) -> RunConfig:
        """The configuration with the matched ``d_ff``."""
        return self.record.config

    @property
    def slug(self) -> str:
        """The variant's unique name, usable as a file name."""
        return self.record.slug

    @property
    def data_hash(self) -> str:
        """The hash of the prepared data."""
        return str(self.identity["data_hash"])

    def training_flops(self, data: PreparedData) -> float:
        """Return the FLOPs of training one run of the variant, computed from the FLOPs of a target token."""
        epochs = self.record.steps / self.steps_per_epoch
        _, target_lengths = data.train_lengths
        mean_inputs = float(decoder_input_lengths(self.config, target_lengths).mean())
        inputs_per_target = max(1.0, mean_inputs)
        inputs = len(target_lengths) * inputs_per_target
        return STEP_COST * self.record.counts.flops_per_token * epochs * inputs


class Epoch(NamedTuple):
    """The batches of an epoch and the target tokens in them."""

    steps: int
    tokens: int


class Costs:
    """Counts of models and lengths of epochs, each computed once."""

    def __init__(self, datasets: PreparedDataSets) -> None:
        self.datasets = datasets
        self._counts: dict[str, ModelCounts] = {}
        self._epochs: dict[tuple[object, ...], Epoch] = {}

    def counts(self, config: RunConfig) -> ModelCounts:
        """Return the counts of a configuration's model.

        Raises:
            HeadToHeadError: If the data cannot be read or are undefined for these options, the model cannot be built,
                or a plugin fails or is faulty (see `count_model`).
        """
        text = config.model_dump_json()
        if text not in self._counts:
            self._counts[text] = count_model(config, self.datasets.of(config))
        return self._counts[text]

    def epoch(self, config: RunConfig) -> Epoch:
        """Return the batches and the tokens of an epoch of a configuration.

        They depend on the data, the batching, the architecture and the quirks only, so configurations that are equal
        in these share the result.

        Raises:
            HeadToHeadError: If the data cannot be read or are undefined for these options, or a quirk returns no batch
                of as many pairs, or its code fails.
        """
        prepared = self.datasets.of(config)
        train = config.train
        key = (
            prepared.data_hash,
            train.batch_tokens,
            train.length_buckets,
            train.batch_size,
            repr(config.quirks),
            config.model.architecture,
        )
        if key not in self._epochs:
            source, target = prepared.train_lengths
            inputs = decoder_input_lengths(config, target)
            batches = make_batches(config, source, inputs, prepared.record["longest"])
            self._epochs[key] = Epoch(batches.steps_per_epoch, batches.tokens_per_epoch)
        return self._epochs[key]


def count_model(config: RunConfig, data: PreparedData) -> ModelCounts:
    """Return the parameters and FLOPs of a model, which is built and called for the mean lengths of its data.

    With plugins that are not built in, the components are also built for four members, so that their tensors are
    checked.

    Raises:
        HeadToHeadError: If the code of such a plugin raises any error, except of the disk and of limits of the machine;
            or if it has a tensor without the dimension of members, changes what all variants share, or reads what it
            does not declare. Errors of a model without such plugins are raised unchanged.
    """
    words = len(data.source_vocabulary), len(data.target_vocabulary)
    with plugin_errors(config), watched_entries([config]):
        if model_plugins(config):
            build_components(config, range(1, 5))
        source_lengths, target_lengths = data.train_lengths
        source = float(source_lengths.mean())
        inputs = float(decoder_input_lengths(config, target_lengths).mean())
        labels = data.splits["train"].labels
        mean_labels = None
        if labels is not None:
            mean_labels = sum((ids != IGNORE_INDEX).sum() for ids in labels) / len(labels)
        return counting.count(config, *words, source, inputs, mean_labels)


def cost_variants(
    loaded: LoadedExperiment,
    variants: Sequence[Variant],
    d_ff_asked: Mapping[str, int],
    costs: Costs,
) -> list[PlannedVariant]:
    """Return each variant with its record (counts, steps, limits, pitfalls), its identity and its plugins, in order.

    Args:
        loaded: The experiment file.
        variants: The variants, whose ``d_ff`` may be changed by ``match``.
        d_ff_asked: The ``d_ff`` before it was changed, by the slug of every variant.
        costs: Counts models and epochs.

    Raises:
        HeadToHeadError: If a model cannot be built or does not fit into memory, the data cannot be read or are
            undefined for these options, an entry is not registered, a plugin fails or is faulty, or a file that an
            entry declares to read is missing.
    """
    planned = []
    for variant in variants:
        config = variant.config
        prepared = costs.datasets.of(config)
        epoch = costs.epoch(config)
        steps = planned_steps(config.train, epoch.steps, epoch.tokens)
        record = VariantRecord(
            slug=variant.slug,
            title=variant.title,
            axes=variant.axes,
            phrases=variant.phrases,
            counts=costs.counts(config),
            d_ff=config.model.d_ff,
            d_ff_asked=d_ff_asked[variant.slug],
            match=variant.match,
            steps=steps,
            evaluate_every=evaluation_interval(config, prepared, steps, epoch.tokens / epoch.steps),
            decoding_limit=decoding_limit(config, prepared.longest_target),
            order_invariant=is_order_invariant(config),
            padding_hidden=padding_has_no_effect(config),
            rate_decays=decays_to_an_end(config.train),
            pitfalls=find_pitfalls(config, prepared.record["leak"]),
            config=config,
        )
        identity = run_identity(config, prepared.data_hash)
        planned.append(PlannedVariant(record, identity, epoch.steps, plugins_of(config)))
        refuse_oversized(loaded, variant.slug, config, record.counts.total)
    return planned


def refuse_oversized(
    loaded: LoadedExperiment, slug: str, config: RunConfig, parameters: int | None = None
) -> None:
    """Raise if a run of a variant cannot fit into the memory of this machine or of its GPU, whichever is larger.

    A run needs at least its weights, and in training gradients and two moments. Activations are left out: a run that
    is out of memory divides its batch. A run of 0 epochs, or that trains some parameters only, counts its weights.

    Args:
        loaded: The experiment file, for the location of the error.
        slug: The variant.
        config: Its configuration.
        parameters: Number of parameters; default: a lower bound, those of the feed-forward networks, for which no
            module is built.

    Raises:
        HeadToHeadError: With the location of ``base.model``, if it needs more than the memory that exists.
    """
    import torch

    available = machine_memory()
    if torch.cuda.is_available():
        available = max(available, gpu_memory())
    train, model = config.train, config.model
    if parameters is None:
        networks = 1 if model.shared_modules else model.layers_in_all
        parameters = 2 * model.d_model * model.d_ff * networks
    is_training_everything = train.epochs != 0 and train.trainable is None
    copies = 4 if is_training_everything else 1
    number_bytes = PRECISIONS[train.precision].number_bytes
    needed = parameters * number_bytes * copies
    if needed > available:
        raise loaded.location("base", "model").error(
            f"variant '{slug}' has at least {parameters:,} parameters, which need {needed / 2**30:,.1f} GiB in "
            f"training; {available / 2**30:,.1f} GiB are available; reduce d_model, d_ff, layers or the vocabulary"
        )
