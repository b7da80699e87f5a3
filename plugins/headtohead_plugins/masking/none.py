"""No mask: every query sees every key, padding and future included.

The negative control. In the decoder it shows each token the next one, so teacher-forced metrics
mean nothing there.
"""

from torch import Tensor

from headtohead import Masking, hookimpl


class NoMask(Masking):
    """Keeps everything; teacher-forced decoder metrics are invalid under it."""

    properties = frozenset({"shows-the-rest"})

    def mask(self, role: str, query_positions: Tensor, key_positions: Tensor, lengths: Tensor) -> None:
        """Return None: nothing is masked."""

    def may_attend(self, role: str, query: int, key: int, length: int) -> bool:
        """Return True: every pair."""
        return True


@hookimpl
def register_maskings() -> dict[str, type[Masking]]:
    """Register ``none``."""
    return {"none": NoMask}
