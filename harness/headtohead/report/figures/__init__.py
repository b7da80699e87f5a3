"""The figures of a report, a module each; all take an `Analysis`."""
