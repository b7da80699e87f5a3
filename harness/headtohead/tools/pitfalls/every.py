"""The measurement of each pitfall, by the name of the pitfall."""

from __future__ import annotations

from headtohead.tools.pitfalls import (
    answer_given,
    batch_rows,
    boundaries,
    deaf_decoder,
    decoding,
    dropped_words,
    future,
    letters,
    masked_embeddings,
    padding,
    shared_table,
    splits,
    untrained,
)
from headtohead.tools.pitfalls.evidence import Evidence

EVIDENCE: dict[str, Evidence] = {
    evidence.pitfall: evidence
    for evidence in (
        splits.nothing_held_out,
        splits.split_by_rows,
        letters.letters_destroyed,
        dropped_words.words_dropped,
        boundaries.no_start_no_stop,
        batch_rows.positions_by_batch_row,
        masked_embeddings.mask_on_embeddings,
        future.future_is_read,
        padding.padding_is_read,
        padding.fixed_padding,
        deaf_decoder.deaf_decoder,
        shared_table.one_table,
        untrained.never_trained,
        untrained.parts_untrained,
        answer_given.answer_given,
        decoding.one_pass_over_zeros,
        decoding.reference_is_read,
    )
}
