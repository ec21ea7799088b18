"""What every package may use: errors, text, durations, ids, clocks. Standard library only, no I/O."""
