"""The line from own checks to the executor, and the loops that walk it."""
