"""Training of a stack: loop, backends, evaluation, attention maps and checkpoints."""
