"""The pictures of a report, one file each; all take an analysed experiment."""
