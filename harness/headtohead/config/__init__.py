"""The configuration: from an experiment file to a `RunConfig`: parsing, merging, defaults, run hash, labels."""
