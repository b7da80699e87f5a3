"""Random texts for property tests."""

from hypothesis import strategies as st

CHARACTERS = "".join(map(chr, (*range(0x3100), *range(0xFB00, 0x10000), *range(0x1F300, 0x1F700))))
"""Scripts, marks, controls, compatibility forms and emoji."""


def random_texts(characters: str = CHARACTERS, **sizes: int) -> st.SearchStrategy[str]:
    """Return a strategy of texts of these characters; ``sizes`` as of ``st.lists``.

    ``st.text`` first makes a table of all Unicode characters and writes it to a file: a fifth of a second per worker.
    """
    return st.lists(st.sampled_from(characters), **sizes).map("".join)
