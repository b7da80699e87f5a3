"""Rotary embedding with lower frequencies in evaluation, for sequences that are longer than those of training.

Type ``linear``: S. Chen et al. "Extending Context Window of Large Language Models via Positional Interpolation", 2023,
arXiv:2306.15595, section 2.3: all frequencies divided by s. Type ``ntk``: section 3.1 of the paper of ``yarn``, after
bloc97 (2023): theta multiplied by s^(d_k / (d_k - 2)), so that the last pair is slower by s and the first not at all.
Type ``yarn``: B. Peng et al. "YaRN: Efficient Context Window Extension of Large Language Models". ICLR 2024,
arXiv:2309.00071, sections 3.2 and 3.4: pairs that turn at least ``beta`` times within L positions keep their
frequencies, those that turn at most ``alpha`` times are divided by s, and a ramp connects them; queries and keys are
multiplied by 0.1 ln(s) + 1, so that scores grow by its square. As in the authors' code, the ramp is linear in the index
of the pair and begins and ends at whole numbers, at pair 0 at the earliest: with L below about 2π · ``beta``, the
first pair keeps its frequency.
Training is that of ``rotary``. Every evaluation is scaled, of validation data and of short sequences, too: a rotation
depends on its position alone, because cached keys are not rotated again when a sequence grows beyond L. A contrast with
``lengths`` above the training length compares longer sequences alone.
Departs from the papers: no fine-tuning with the changed frequencies.
"""

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from headtohead import registered
from headtohead.plugin import Options as BaseOptions
from headtohead.plugin import Positional, Setting, find_geometry, hookimpl


class RotaryScaledOptions(BaseOptions):
    """Kind and factor of the scaling, and the base of the wavelengths."""

    type: Literal["linear", "ntk", "yarn"] = Field("yarn", description="how frequencies change")
    factor: float = Field(
        2.0, ge=1, le=1e6, description="s: longest sequence of the test over that of training"
    )
    length: int = Field(
        32, ge=1, le=10**6, description="L, for yarn: longest training sequence in tokens"
    )
    alpha: float = Field(
        1.0, gt=0, le=1e6, description="yarn: turns within L up to which a pair is slower by s"
    )
    beta: float = Field(
        32.0, gt=0, le=1e6, description="yarn: turns within L from which a pair keeps its frequency"
    )
    theta: float = Field(10000.0, gt=1, le=1e300, description="base of the geometric wavelengths")


def frequencies(options: RotaryScaledOptions, width: int) -> Tensor:
    """Return the angle per position of every pair of coordinates, ``[width / 2]``, in float64."""
    pair = torch.arange(width // 2, dtype=torch.float64)
    s = options.factor
    theta = options.theta
    if options.type == "ntk":
        theta *= s ** (width / (width - 2))
    plain = theta ** (-2 * pair / width)
    if options.type == "ntk":
        return plain
    if options.type == "linear":
        return plain / s

    def pair_with(turns: float) -> float:
        inverse_frequency = options.length / (turns * 2 * math.pi)
        return width * math.log(inverse_frequency) / (2 * math.log(theta))

    kept_pair = pair_with(options.beta)
    slowed_pair = pair_with(options.alpha)
    first = max(math.floor(kept_pair), 0)
    last = min(math.ceil(slowed_pair), width - 1)
    ramp_length = max(last - first, 0.001)
    ramp = ((pair - first) / ramp_length).clamp(0, 1)
    return plain * (1 - ramp + ramp / s)


def turns_at(
    positions: Tensor, width: int, options: RotaryScaledOptions, dtype: torch.dtype
) -> Tensor:
    """Return the factors of pairs as complex numbers, ``[batch or 1, 1, time, width / 2]``."""
    p = positions.double()[:, None, :, None]
    angles = p * frequencies(options, width).to(positions.device)
    size = 1.0
    if options.type == "yarn":
        size = 0.1 * math.log(options.factor) + 1
    sizes = torch.full_like(angles, size)
    factors = torch.polar(sizes, angles)
    return factors.to(dtype.to_complex())


class RotaryScaled(Positional):
    """RoPE that is trained as usual and evaluated with lower frequencies."""

    phrase = "scaled rotary[ of type {type}][ by {factor}][ with base {theta}]"
    Options = RotaryScaledOptions
    options: RotaryScaledOptions
    properties = frozenset({"relative"})

    @classmethod
    def depends_on(cls, options: BaseOptions) -> tuple[str, ...]:
        return ("rotary",)

    @classmethod
    def incompatible_with(cls, options: BaseOptions, setting: Setting) -> str | None:
        """Require an even key width of at least 4."""
        width = find_geometry(setting.config, setting.role).key_width
        if width % 2 or width < 4:
            return f"rotary-scaled requires an even key width from 4, got {width}; change model.d_model or model.heads"
        return None

    def build(self) -> None:
        entry: type[Positional] = registered("positional", "rotary")
        options = entry.Options.model_validate({"theta": self.options.theta})
        self.plain = entry(options, self.context)

    def formula(self) -> str:
        scaled = {
            "linear": "θ_i / s",
            "ntk": "(θ s^{d/(d−2)})^{−2i/d}",
            "yarn": "θ_i (1 − r_i + r_i / s)",
        }
        frequency = scaled[self.options.type]
        s = f"{self.options.factor:g}"
        return f"(x_{{2i}}, x_{{2i+1}}) rotated by p · {frequency} in evaluation, s = {s}"

    def rotate(self, x: Tensor, positions: Tensor, role: str, layer: int) -> Tensor:
        if self.training:
            return self.plain.rotate(x, positions, role, layer)
        dtype = torch.promote_types(x.dtype, torch.float32)
        exact = x.to(dtype)
        turns = self.cached(turns_at, positions, x.shape[-1], self.options, dtype)
        even = exact[..., 0::2]
        odd = exact[..., 1::2]
        turned = torch.complex(even, odd) * turns
        pairs = torch.view_as_real(turned)
        return pairs.flatten(-2).to(x.dtype)


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    return {"rotary-scaled": RotaryScaled}
