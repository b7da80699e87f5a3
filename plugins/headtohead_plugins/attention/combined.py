"""Two styles in every layer: the changes of the first one, then those of the second.

For a question such as "does a gate still help with value residuals?", as a product of ``attention.first`` and
``attention.second``. Both have their default options. ``split-heads`` changes nothing.
Without roles, combined acts in encoder and decoder, and cross-attention has split heads, also where one of the styles
alone would act there.
"""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field
from torch import Tensor, nn

from headtohead import registered
from headtohead.plugin import Attention, Setting, hookimpl
from headtohead.plugin import Options as BaseOptions

CHAINED = ("mix_embeddings", "transform", "mix_values", "post_heads")
"""Hooks that a combined style may have: the others replace a step of attention, which a second style would undo."""


class CombinedOptions(BaseOptions):
    """Names of two styles."""

    first: str = Field(
        "split-heads", description="the style that acts first, such as value-residual"
    )
    second: str = Field(
        "split-heads", description="the style that receives its results, such as gated"
    )


def style_of(name: str) -> type[Attention]:
    """Return the class of an attention style."""
    style: type[Attention] = registered("attention", name)
    return style


def replacing_hook(style: type[Attention]) -> str | None:
    """Return the first hook of a style that replaces a step of attention, or None."""
    own_classes = style.__mro__[: style.__mro__.index(Attention)]
    for hook in Attention.hooks:
        if hook in CHAINED:
            continue
        for own_class in own_classes:
            if hook in vars(own_class):
                return hook
    return None


class Combined(Attention):
    """Split heads with the changes of two other styles."""

    phrase = "combined styles[ {first:attention}][ {second:attention}]"
    Options = CombinedOptions
    options: CombinedOptions
    role_defaults: ClassVar[Mapping[str, str]] = {"cross": "split-heads"}

    @classmethod
    def depends_on(cls, options) -> tuple[str, ...]:  # type: ignore[no-untyped-def]
        return (options.first, options.second)

    @classmethod
    def depends_on_order(cls, options) -> bool:  # type: ignore[no-untyped-def]
        for name in cls.depends_on(options):
            style = style_of(name)
            if style.depends_on_order(style.Options()):
                return True
        return False

    @classmethod
    def incompatible_with(cls, options, setting: Setting) -> str | None:  # type: ignore[no-untyped-def]
        """Exclude styles with other hooks, and what either style excludes."""
        for name in cls.depends_on(options):
            style = style_of(name)
            hook = replacing_hook(style)
            if hook is not None:
                allowed = ", ".join(CHAINED)
                return f"combined requires styles that define only {allowed}; {name} defines {hook}"
            reason = style.incompatible_with(style.Options(), setting)
            if reason is not None:
                return reason
        return None

    def build(self) -> None:
        self.styles = nn.ModuleList()
        for name in self.depends_on(self.options):
            style = style_of(name)
            self.styles.append(style(style.Options(), self.context))

    def formula(self) -> str:
        formulas = []
        for style in self.styles:
            formula = style.formula()  # type: ignore[operator]
            if formula:
                formulas.append(formula)
        return "; ".join(formulas)

    def mix_embeddings(self, x: Tensor) -> Tensor:
        for style in self.styles:
            x = style.mix_embeddings(x)  # type: ignore[operator]
        return x

    def transform(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        for style in self.styles:
            q, k = style.transform(q, k)  # type: ignore[operator]
        return q, k

    def mix_values(self, values: Tensor, first: Tensor) -> Tensor:
        for style in self.styles:
            values = style.mix_values(values, first)  # type: ignore[operator]
        return values

    def post_heads(self, heads: Tensor, x: Tensor, values: Tensor) -> Tensor:
        for style in self.styles:
            heads = style.post_heads(heads, x, values)  # type: ignore[operator]
        return heads


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"combined": Combined}
