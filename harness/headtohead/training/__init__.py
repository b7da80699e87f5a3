"""The loop, evaluation, attention maps and checkpoints of a stack."""
