"""Frameworks that call convref: each a folder, imported only by name."""
