"""Every invariant, one idea per file."""

from __future__ import annotations

from headtohead.testing.invariant import Invariant
from headtohead.testing.invariants import (
    causality,
    decoding,
    determinism,
    distance,
    gradients,
    loss,
    masked_rows,
    masks,
    order,
    padding,
    parameters,
    parity,
    shift,
    source,
    stacking,
    target,
    weights,
)

INVARIANTS: tuple[Invariant, ...] = (
    masks.a_mask_does_what_it_promises,
    masks.a_mask_is_the_same_step_by_step,
    causality.future_tokens_never_reach_earlier_logits,
    padding.more_padding_changes_nothing,
    padding.what_stands_in_padding_is_never_read,
    padding.a_batch_equals_its_sentences_alone,
    order.order_of_the_source_is_heard_unless_nothing_tells_it,
    order.mirror_image_of_the_source_is_heard_unless_encoding_is_symmetric,
    shift.a_joint_shift_changes_nothing,
    distance.weights_fall_strictly_with_distance,
    parity.fused_path_equals_explicit_path,
    masked_rows.fully_masked_rows_are_predictable,
    weights.rows_of_weights_sum_to_one,
    weights.weights_times_values_are_the_output,
    decoding.cached_decoding_equals_teacher_forcing,
    decoding.greedy_decoding_equals_a_plain_loop,
    parameters.parameter_count_equals_the_closed_form,
    loss.smoothed_loss_equals_the_frameworks,
    source.every_source_word_reaches_the_logits,
    target.every_target_token_reaches_the_logits_it_is_shown_to,
    gradients.gradient_reaches_every_parameter,
    determinism.a_seed_decides_everything,
    stacking.a_member_trains_as_it_would_alone,
)
