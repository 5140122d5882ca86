"""Reports of records: tables, plots, an HTML page and a section of the documentation."""
