"""Runs one attempt beside the user's code. Standard library only."""
