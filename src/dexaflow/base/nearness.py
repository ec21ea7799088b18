"""Which known word was meant by one that is unknown: a wrong guess is worse than none."""

from collections.abc import Iterable

__all__ = ["nearest"]

_ALIKE = 0.75  # of 1, as difflib counts
_SHORTEST = 3  # of shorter words everything is near


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is really close to `word`, or None. Case, `_` and `-` do not count.

    Close are words of one or two slips (`tiemout`), one that begins with the other (`schedule_interval`), and those
    that share most of their beginning (`retry`, `retries`).
    """
    import difflib  # late: only a mistake needs it

    plain = {_plain(name): name for name in known}
    found = difflib.get_close_matches(_plain(word), plain, n=1, cutoff=_ALIKE)
    if found:
        return plain[found[0]]
    return next((name for bare, name in plain.items() if _begin_alike(_plain(word), bare)), None)


def _plain(word: str) -> str:
    return word.lower().replace("_", "").replace("-", "")


def _begin_alike(one: str, other: str) -> bool:
    shorter = min(len(one), len(other))
    shared = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), shorter)
    if shorter >= _SHORTEST and len(one) == len(other):
        return sum(a != b for a, b in zip(one, other, strict=True)) == 1  # url, uri
    return shorter >= _SHORTEST and shared >= max(_SHORTEST, _ALIKE * shorter)
