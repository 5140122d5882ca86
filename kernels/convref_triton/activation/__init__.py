"""Activations alone."""
