"""Reports: the answer of an experiment as a page, as Markdown and as a table."""

from headtohead.report.writing import ReportPaths, write_report

__all__ = ["ReportPaths", "write_report"]
