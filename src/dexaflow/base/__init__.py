"""What every package may use: errors, text, durations, ids, clocks, steps. Standard library only, no I/O."""
