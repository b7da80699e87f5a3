"""Drawing in one style: arrays in, matplotlib figures out."""
