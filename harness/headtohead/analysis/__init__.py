"""Tidy tables, statistics, attention maps and figures; nothing here trains or tracks."""
