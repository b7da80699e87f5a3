"""Reports of an experiment as an HTML page, a Markdown file, a CSV table and notebook output."""

from headtohead.report.writing import ReportPaths, write_report

__all__ = ["ReportPaths", "write_report"]
