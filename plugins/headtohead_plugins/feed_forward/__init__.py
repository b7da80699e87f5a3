"""Built-in feed-forward networks, one file each."""
