"""From the experiment file to a complete `RunConfig`: parsing, merging, defaults, run hash, labels."""
