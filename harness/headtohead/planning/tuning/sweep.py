"""The experiment of the tuning runs: every variant with every setting, on seeds that no other experiment can use."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from headtohead.config.loading import LoadedExperiment
from headtohead.config.phrases import phrase_at
from headtohead.planning.design import Design
from headtohead.planning.tuning.choice import FURTHER_SEEDS
from headtohead.planning.tuning.settings import TuningSetting
from headtohead.planning.variants import Variant
from headtohead.schema.experiment_file import MAX_SEED, Metrics
from headtohead.schema.run_config import changed
from headtohead.storage.tuning import TUNING_METRIC


def sweep(
    loaded: LoadedExperiment,
    design: Design,
    settings: Mapping[str, Sequence[TuningSetting]],
    further: Collection[str] = (),
) -> tuple[LoadedExperiment, Design]:
    """Return the experiment of the tuning runs, and its design: every variant with each of its settings.

    The experiment is a copy without ``tune`` whose primary metric is `TUNING_METRIC`. Its number of seeds is
    ``tune_seeds``, and with ``tune_epochs`` every variant trains for these epochs. Its baseline is the baseline of the
    design with its first setting; nothing is excluded.

    Args:
        loaded: The experiment that is tuned.
        design: Its design.
        settings: The settings by slug of a variant. Every variant has at least one; all have the same fields.
        further: The slugs of the tuning variants, as of `swept_slug`, that get `FURTHER_SEEDS` further seeds.
    """
    # The seeds do not depend on those of the experiment, so that it can get more seeds.
    num_seeds = loaded.file.tune_seeds
    seeds = tuple(MAX_SEED + number for number in range(1, num_seeds + 1))
    further_seeds = tuple(seeds[-1] + number for number in range(1, FURTHER_SEEDS + 1))
    first = settings[design.baseline][0]
    file = loaded.file.model_copy(
        update={
            "question": f"Which {' and '.join(first.values)} suits each variant of {loaded.name}?",
            "tune": None,
            "tune_epochs": None,
            "metrics": Metrics(primary=TUNING_METRIC, report=()),
            "seeds": list(seeds),
        }
    )
    variants = []
    for variant in design.variants:
        for setting in settings[variant.slug]:
            variants.append(_swept(variant, setting, loaded.file.tune_epochs))
    swept_design = Design(
        axes=(*design.axes, *first.values),
        variants=tuple(variants),
        baseline=swept_slug(design.baseline, first),
        excluded=(),
        seeds=seeds,
        start=design.start,
        labels={variant.slug: variant.axes for variant in variants},
        further_seeds=dict.fromkeys(further, further_seeds),
    )
    return replace(loaded, name=loaded.sweep_name, file=file, seeds=seeds), swept_design


def swept_slug(slug: str, setting: TuningSetting) -> str:
    """Return the slug of a variant with a setting."""
    return f"{slug}-{setting.slug}"


def _swept(variant: Variant, setting: TuningSetting, epochs: float | None) -> Variant:
    """Return a variant of the sweep: a variant with a setting; nothing is validated.

    It is trained for ``epochs``, or as long as the variant if this is None.
    """
    config = setting.apply(variant.config)
    phrases = {path: phrase_at(config, tuple(path.split("."))) for path in setting.values}
    if epochs is not None:
        config = changed(config, train={"epochs": epochs, "steps": None, "tokens": None})
    return Variant(
        slug=swept_slug(variant.slug, setting),
        title=", ".join([variant.title, *phrases.values()]),
        axes={**variant.axes, **setting.values},
        config=config,
        match=variant.match,
        phrases={**variant.phrases, **phrases},
    )


def has_other_length(design: Design, epochs: float | None) -> bool:
    """Return whether a variant's tuning runs with these epochs have another length than its own runs."""
    if epochs is None:
        return False
    lengths = [
        (variant.config.train.epochs, variant.config.train.steps, variant.config.train.tokens)
        for variant in design.variants
    ]
    return any(length != (epochs, None, None) for length in lengths)
