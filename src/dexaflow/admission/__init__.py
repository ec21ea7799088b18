"""The rules of admission and the gate. Pure but for what the gate is handed to await."""
