"""``h2h judge``: the command of the package headtohead_judge."""

from headtohead_judge.command import command as command
