"""For whoever writes the other side: a hook function behind a URL."""
