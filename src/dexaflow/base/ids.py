"""Identifiers. Time and chance are passed in, so that a seed gives the same ids."""

import uuid

__all__ = ["time_ordered_id"]


def time_ordered_id(unix_ms: int, random_80_bits: int) -> str:
    """Return a UUID of version 7 (RFC 9562): sorts by time of creation (R3.1: ``run_id`` is time-ordered).

    Args:
        unix_ms: Milliseconds since 1970, non-negative.
        random_80_bits: Any non-negative int; its low 74 bits are used.
    """
    rand_a = (random_80_bits >> 62) & 0xFFF
    rand_b = random_80_bits & ((1 << 62) - 1)
    value = ((unix_ms & ((1 << 48) - 1)) << 80) | (0x7 << 76) | (rand_a << 64) | (0b10 << 62) | rand_b
    return str(uuid.UUID(int=value))
