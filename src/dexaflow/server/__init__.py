"""Composition root, and the library of R8.1."""
