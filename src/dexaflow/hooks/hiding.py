"""Keeping what the endpoint is sent in confidence out of what is said about its answer (R2.3)."""

from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

__all__ = ["HIDDEN", "hidden"]

HIDDEN: Final = "(hidden)"
_TELLING: Final = 8  # characters that a secret begins with: quoting may have cut off the others


def hidden(text: str, secrets: Iterable[str | None]) -> str:
    r"""Return `text` without the secrets, also where one is cut off, percent-encoded, or has JSON's ``\/``."""
    for secret in filter(None, secrets):
        for spelling in (secret, secret.replace("/", "\\/"), quote(secret, safe="")):
            text = _without(text, spelling)
    return text


def _without(text: str, secret: str) -> str:
    pieces: list[str] = []
    start = secret[:_TELLING]
    end = 0
    while (found := text.find(start, end)) >= 0:
        pieces += (text[end:found], HIDDEN)
        end = found + len(start)
        while end < min(len(text), found + len(secret)) and text[end] == secret[end - found]:
            end += 1
    return "".join((*pieces, text[end:]))
