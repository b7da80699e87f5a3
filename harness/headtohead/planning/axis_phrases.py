"""What people call the axes of a design and their values, with the names that the experiment file gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headtohead.config.clauses import with_preposition
from headtohead.config.labels import Scalar, text
from headtohead.config.loading import LoadedExperiment
from headtohead.config.phrases import MATCHES, field_phrase, named_phrase, phrase_at, with_addition
from headtohead.config.source_location import shown
from headtohead.errors import nearest
from headtohead.planning.naming import distinct
from headtohead.planning.variants import (
    DATA_AXIS,
    MATCH_AXIS,
    RECIPE_AXIS,
    SIZE_AXIS,
    is_runtime,
)
from headtohead.schema.run_config import ModelConfig, RunConfig

WITHOUT_RECIPE = "without a recipe"
INNER_WIDTH = "model.d_ff"


def value_phrase(axis: str, label: Scalar, written: Any, config: RunConfig) -> str:
    """Return what people call the value of an axis in a combination, such as ``rotary`` or ``with 4 heads``.

    A recipe or a data section is its name with the fields that are written beside it; a size is the fields ``written``.
    Of other axes, the value is that in ``config``, with an entry's options; the width ``d_ff`` is its label, such as
    ``4x``, which ``config`` no longer has.

    Args:
        axis: The axis.
        label: The label of the value.
        written: The value in the experiment file; None if it is the baseline's and not written. Of a size, some of its
            fields by path, as many as distinguish it.
        config: The configuration of the combination, with parsed options.

    Raises:
        HeadToHeadError: If an entry is not registered.
    """
    if axis == MATCH_AXIS:
        return MATCHES[str(label)]
    if axis == RECIPE_AXIS:
        return _recipe_phrase(label, written, config)
    if axis == SIZE_AXIS:
        return fields_phrase(written, config)
    if axis == DATA_AXIS:
        phrase = named_phrase("dataset", config.data.dataset, {})
        if not isinstance(written, Mapping):
            return phrase
        return _with_fields(phrase, [f"{DATA_AXIS}.{name}" for name in written], config)
    if axis == INNER_WIDTH:
        return field_phrase("d_ff", ModelConfig.model_fields["d_ff"], label)
    return phrase_at(config, tuple(axis.split(".")))


def fields_phrase(fields: Iterable[str], config: RunConfig) -> str:
    """Return the phrases of the values of some fields, given as dotted paths, joined by commas."""
    return ", ".join(phrase_at(config, tuple(path.split("."))) for path in fields)


def _recipe_phrase(label: Scalar, written: Any, config: RunConfig) -> str:
    """Return the phrase of a recipe with the fields that are written beside its name; a None label is no recipe."""
    if label is None:
        return WITHOUT_RECIPE
    if not isinstance(written, Mapping):
        return named_phrase("recipe", str(written), {})
    return _with_fields(named_phrase("recipe", str(written["name"]), {}), written, config)


def _with_fields(phrase: str, fields: Iterable[str], config: RunConfig) -> str:
    """Return a phrase, followed by the phrases of the values of some fields, given as dotted paths.

    Names of entries and datasets, files, addresses, and fields that no result depends on are left out.
    """
    for field in fields:
        path = tuple(field.split("."))
        is_shown = path[-1] not in ("name", "dataset", "file", "url")
        if is_shown and not is_runtime(*path[:2]):
            phrase = with_addition(phrase, with_preposition(phrase_at(config, path)))
    return phrase


class GivenNames:
    """The phrases of the section ``names`` of an experiment file.

    Args:
        loaded: The experiment file.
        allowed: The slugs of the configurations that it may name, such as ``from`` and ``to``.

    Attributes:
        configuration_names: The name of each named configuration, by slug.
        values: The names of each named axis by value; `check` refuses unknown axes.

    Raises:
        HeadToHeadError: If an entry other than the name of such a configuration is no mapping.
    """

    def __init__(self, loaded: LoadedExperiment, allowed: Sequence[str] = ()) -> None:
        self.location = loaded.location("names")
        self.configuration_names: dict[str, str] = {}
        self.values: dict[str, dict[str, str]] = {}
        for key, written in loaded.file.names.items():
            if isinstance(written, Mapping):
                self.values[key] = dict(written)
            elif key in allowed:
                self.configuration_names[key] = written
            else:
                raise self.location.child(key).error(
                    f"expected a mapping of values and names, such as {{rotary: RoPE}}, got {shown(written)}"
                )

    def check(self, labels: Mapping[str, Sequence[Scalar]]) -> None:
        """Raise unless every name is that of an axis and of a value of it.

        Args:
            labels: The labels of each axis of the design; repeated labels count once.

        Raises:
            HeadToHeadError: For an unknown axis, and for a value that no combination has, with the known ones.
        """
        for axis, phrases in self.values.items():
            if axis not in labels:
                raise self.location.child(axis).error(
                    f"'{axis}' is no axis of this design{nearest(axis, labels)}"
                )
            values = list(dict.fromkeys(text(label) for label in labels[axis]))
            for value in phrases:
                if value not in values:
                    expected = ", ".join(map(shown, values))
                    raise self.location.child(axis, value).error(
                        f"'{value}' is no value of {axis}; expected one of {expected}"
                    )

    def distinct_phrases(self, axis: str, phrases: Mapping[str, str]) -> dict[str, str]:
        """Return the phrase of each value of an axis by its label.

        Names of the file replace phrases, or are added to them. Equal phrases are followed by their label.
        """
        return distinct({**phrases, **self.values.get(axis, {})})
