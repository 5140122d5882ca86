"""What records become: tables, plots, an HTML page and the part of the documentation."""
