"""The run-directory format: records, states, metrics, leases and data frames."""
