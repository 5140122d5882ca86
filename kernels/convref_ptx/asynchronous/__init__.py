"""Asynchronous copies, mbarriers and tensor maps."""
