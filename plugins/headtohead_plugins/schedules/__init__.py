"""Built-in learning-rate schedules, one file each."""
