"""Keeping what the endpoint is sent in confidence out of what is said about its answer (R2.3)."""

from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

__all__ = ["HIDDEN", "hidden"]

HIDDEN: Final = "(hidden)"
_CUT: Final = "..."  # stands where quoting has cut a text off
_TELLING: Final = 4  # characters that a secret begins with; fewer before a cut tell nothing


def hidden(text: str, secrets: Iterable[str | None]) -> str:
    r"""Return `text` without the secrets, also where one is cut off, percent-encoded, or has JSON's ``\/``."""
    for secret in filter(None, secrets):
        for spelling in (secret, secret.replace("/", "\\/"), quote(secret, safe="")):
            text = _without(text, spelling)
    return text


def _without(text: str, secret: str) -> str:
    pieces = text.replace(secret, HIDDEN).split(_CUT)
    for n, piece in enumerate(pieces[:-1]):
        for length in range(min(len(piece), len(secret) - 1), _TELLING - 1, -1):
            if piece.endswith(secret[:length]):
                pieces[n] = piece[:-length] + HIDDEN
                break
    return _CUT.join(pieces)
