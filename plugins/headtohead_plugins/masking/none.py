"""No mask: every query attends to every key, padding and later tokens included.

A negative control. In the decoder, each token attends to its own label, so teacher-forced metrics
are invalid.
"""

from torch import Tensor

from headtohead.plugin import Masking, hookimpl


class NoMask(Masking):
    """Masks no key; teacher-forced metrics of a decoder are invalid."""

    phrase = "without a mask"
    properties = frozenset({"shows-the-rest"})

    def mask(
        self, role: str, query_positions: Tensor, key_positions: Tensor, lengths: Tensor
    ) -> None:
        return None

    def may_attend(self, role: str, query: int, key: int, length: int) -> bool:
        return True


@hookimpl
def register_maskings() -> dict[str, type[Masking]]:
    return {"none": NoMask}
