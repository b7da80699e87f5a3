"""Run directories and their life: leases, workers, launchers, loading and repeating."""
