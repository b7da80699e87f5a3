"""Built-in entries of the family launchers: one file each."""
