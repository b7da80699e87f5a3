"""Freely chosen numbers of heads and head widths.

Paper: A. Vaswani et al. "Attention Is All You Need". NeurIPS 2017, arXiv:1706.03762, table 3,
rows A and B, where d_k and d_v are independent of d_model / heads. All other head geometries are
special cases.
"""

from pydantic import Field

from headtohead.plugin import Attention, Geometry, HeadToHeadError, ModelConfig, hookimpl
from headtohead.plugin import Options as BaseOptions


class FreeGeometryOptions(BaseOptions):
    """Widths and key/value heads."""

    key_width: int = Field(32, ge=1, le=65_536, description="d_k, width of a query or key")
    value_width: int = Field(32, ge=1, le=65_536, description="d_v, width of a value")
    kv_heads: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="key/value heads; must divide model.heads; default: model.heads",
    )


class FreeGeometry(Attention):
    """``model.heads`` heads of any key and value width; scores are scaled by d_k ** -0.5."""

    phrase = (
        "heads of free width"
        "[ with keys of {key_width}]"
        "[ with values of {value_width}]"
        "[ with {kv_heads} key-value heads]"
    )
    Options = FreeGeometryOptions

    @classmethod
    def geometry(cls, options: BaseOptions, model: ModelConfig) -> Geometry:
        assert isinstance(options, FreeGeometryOptions)
        kv_heads = options.kv_heads or model.heads
        if model.heads % kv_heads:
            raise HeadToHeadError(
                f"free-geometry needs kv_heads to divide heads, got {kv_heads} and {model.heads}"
            )
        scale = options.key_width**-0.5
        return Geometry(model.heads, kv_heads, options.key_width, options.value_width, scale)


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"free-geometry": FreeGeometry}
