"""Own checks, made before any hook is asked (R1.2, section 2). Pure."""
