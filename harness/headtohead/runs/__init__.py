"""Run directories and their life: claims, workers, launchers, loading and repeating."""
