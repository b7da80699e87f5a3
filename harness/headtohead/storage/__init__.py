"""The run-directory format: records, states, metrics, leases and data frames.

Reading raises a HeadToHeadError that names the file if it is damaged or required and missing, if its path leaves the
runs folder, or if a symbolic link leads to it.
"""
