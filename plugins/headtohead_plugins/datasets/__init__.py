"""Built-in entries of the family datasets: one file each."""
