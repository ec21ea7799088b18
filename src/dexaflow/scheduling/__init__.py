"""When runs begin, which tasks are due, who gets slots."""
