"""The types of an experiment file and of a complete run configuration."""
