"""Reports of an experiment as an HTML page, a Markdown file, a CSV table and notebook output."""
