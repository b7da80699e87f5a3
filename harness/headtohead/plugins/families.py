"""The families of plugin entries: one `Family` for each kind of entry, in one list.

The hooks ``register_NAME``, the registry, the checks of plugins, ``h2h new-plugin``, ``h2h plugins`` and the generated
pages follow from the list. A component of the model also has a field in `RunConfig`, which states its roles and its
default entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headtohead.plugins.attention import Attention as Attention
    from headtohead.plugins.dataset import Dataset as Dataset
    from headtohead.plugins.entry import Entry as _Entry
    from headtohead.plugins.feed_forward import FeedForward as FeedForward
    from headtohead.plugins.launcher import Launcher as Launcher
    from headtohead.plugins.logger import Logger as Logger
    from headtohead.plugins.masking import Masking as Masking
    from headtohead.plugins.norm import Norm as Norm
    from headtohead.plugins.positional import Positional as Positional
    from headtohead.plugins.quirk import Quirk as Quirk
    from headtohead.plugins.recipe import Recipe as Recipe
    from headtohead.plugins.schedule import Schedule as Schedule


@dataclass(frozen=True)
class Template:
    """What ``h2h new-plugin`` writes for a family.

    Args:
        entry: The built-in entry with whose source the package begins.
        question: The question of its experiment; ``{}`` stands for the name of the new entry, here and below.
        contract: The test class of the contract.
        data: The section ``data`` of the experiment.
        axis: The axis of the design; by default, the new entry is compared with the default of its family.
        check: The command that checks the entry; by default ``h2h check``.
    """

    entry: str
    question: str
    contract: str = "ComponentContract"
    data: str = "dataset: toy-grammar"
    axis: str = ""
    check: str = ""


@dataclass(frozen=True)
class Family:
    """A kind of plugin entry.

    Args:
        name: The name in experiment files and commands; ``register_NAMEs`` is its hook.
        base: Import path of the base class. It is imported at first use, since most base classes import torch.
        plural: The readable name of its entries.
        place: Path of an entry in a configuration; empty for a family that no configuration contains.
        template: Of a family for which ``h2h new-plugin`` writes a package.
        rivals: Entries that ``h2h card`` compares a component with, as an experiment file has them.
        acts_per_token: Whether an entry acts on each token alone, outside attention, so that entries of other families
            do not affect it. The checks then combine it with fewer others.
        differs_in_stack: Whether members of a stack can have different entries.
        in_catalogue: Whether the catalogue shows each entry with pictures, properties and costs. The entries of other
            families share a page of the reference.
    """

    name: str
    base: str
    plural: str
    place: tuple[str, ...] = ()
    template: Template | None = None
    rivals: tuple[str, ...] = ()
    acts_per_token: bool = False
    differs_in_stack: bool = False
    in_catalogue: bool = False

    @property
    def hook(self) -> str:
        """The name of the hook that registers entries."""
        return f"register_{self.name}s"

    @property
    def base_name(self) -> str:
        """The name of the base class in ``headtohead.plugin``."""
        return self.base.rpartition(".")[2]

    @property
    def base_module(self) -> str:
        """The module of the base class."""
        return self.base.rpartition(".")[0]

    @cached_property
    def base_class(self) -> type[_Entry]:
        """The base class, which this property imports."""
        base_class: type[_Entry] = getattr(import_module(self.base_module), self.base_name)
        return base_class

    @property
    def is_component(self) -> bool:
        """Whether entries are parts of the model: a configuration has one per role."""
        return self.place == (self.name,)

    @property
    def affects_results(self) -> bool:
        """Whether results depend on the code of an entry; the configuration of a recipe is part of the run hash."""
        return bool(self.place)

    @cached_property
    def roles(self) -> tuple[str, ...]:
        """The roles in which a configuration has an entry of a component's family."""
        return tuple(self._default_entries.by_role())

    @cached_property
    def default(self) -> str:
        """The name of the entry that a configuration without an entry of the family has."""
        if self.is_component:
            return str(self._default_entries.decoder.name)
        from headtohead.schema.run_config import SECTIONS  # imports pydantic, which takes a while

        section, field = self.place
        default = SECTIONS[section].model_fields[field].default
        return str(getattr(default, "name", default))

    @property
    def _default_entries(self) -> Any:
        from headtohead.schema.run_config import RunConfig  # imports pydantic, which takes a while

        return RunConfig.model_fields[self.name].default


_LIST = (
    Family(
        "positional",
        base="headtohead.plugins.positional.Positional",
        plural="positional encodings",
        place=("positional",),
        template=Template("alibi", "Does {} translate better than sinusoids?"),
        rivals=("rotary", "alibi", "sinusoidal"),
        differs_in_stack=True,
        in_catalogue=True,
    ),
    Family(
        "attention",
        base="headtohead.plugins.attention.Attention",
        plural="attention styles",
        place=("attention",),
        template=Template("sigmoid", "Does {} translate better than split heads?"),
        rivals=("split-heads", "qk-norm", "gated"),
        in_catalogue=True,
    ),
    Family(
        "masking",
        base="headtohead.plugins.masking.Masking",
        plural="masking schemes",
        place=("masking",),
        template=Template("window", "Does {} translate better than a causal mask?"),
        rivals=("padding-causal", "{name: window, width: 8}", "{name: window, width: 16}"),
        differs_in_stack=True,
        in_catalogue=True,
    ),
    Family(
        "feed_forward",
        base="headtohead.plugins.feed_forward.FeedForward",
        plural="feed-forward networks",
        place=("feed_forward",),
        template=Template("relu2", "Does {} translate better than ReLU?"),
        rivals=("gelu", "relu", "swiglu"),
        acts_per_token=True,
    ),
    Family(
        "norm",
        base="headtohead.plugins.norm.Norm",
        plural="norms",
        place=("norm",),
        template=Template("rmsnorm", "Does {} translate better than layer normalisation?"),
        rivals=("layernorm", "rmsnorm", "dynamic-tanh"),
        acts_per_token=True,
    ),
    Family(
        "schedule",
        base="headtohead.plugins.schedule.Schedule",
        plural="learning-rate schedules",
        place=("train", "schedule"),
        differs_in_stack=True,
    ),
    Family("quirk", base="headtohead.plugins.quirk.Quirk", plural="quirks", place=("quirks",)),
    Family(
        "dataset",
        base="headtohead.plugins.dataset.Dataset",
        plural="datasets",
        place=("data", "dataset"),
        template=Template(
            "parity",
            "Which positional encoding generalises to longer sequences of {} than those in training?",
            contract="DatasetContract",
            data="dataset: {}, split: length",
            axis="positional: [rotary, none]",
            check="h2h data stats {}",
        ),
        in_catalogue=True,
    ),
    Family("recipe", base="headtohead.plugins.recipe.Recipe", plural="recipes"),
    Family("launcher", base="headtohead.plugins.launcher.Launcher", plural="launchers"),
    Family("logger", base="headtohead.plugins.logger.Logger", plural="loggers"),
)

FAMILIES: dict[str, Family] = {family.name: family for family in _LIST}
"""All families by name, in the order of tables and pages."""

REGISTERED_BY: dict[str, Family] = {family.hook: family for family in _LIST}
"""All families by the hook that registers their entries."""

COMPONENTS: dict[str, Family] = {
    name: family for name, family in FAMILIES.items() if family.is_component
}
"""The families of the parts of a model, by name."""

CHECKED_FAMILIES = (*COMPONENTS, "recipe", "dataset")
"""The families with invariants, which ``h2h check`` takes."""
