"""Text from outside, made safe to keep and to show (R4.4). Nothing else in Dexaflow cleans text."""

import re
import unicodedata

__all__ = [
    "MAX_REASON_BYTES",
    "NO_REASON",
    "clean_reason",
    "cut",
    "quoted",
    "shortened",
    "shown",
    "size_in_utf8",
    "without_user_info",
]

MAX_REASON_BYTES = 512  # spec, "The answer"
NO_REASON = "no reason given"  # R4.3: a hold or a refusal without one is legal, and shown so

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")  # all of Unicode's category Cc; it is closed, no version adds to it
_CLEANED_AT_ONCE = 4096  # characters; more of them than a reason keeps bytes
_SURROGATE = re.compile("[\ud800-\udfff]")
_USER_INFO = re.compile(r"(?<=://)\S{1,300}@")  # bounded, so that a long text costs no more than its length
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # no shape of their own, or a new line: shown as escapes


def clean_reason(text: str) -> str:
    """Return a reason as it is kept (R4.4).

    Halves of surrogate pairs, which UTF-8 cannot hold, become U+FFFD (two that make a pair become their character);
    then control characters go; then the text is cut to `MAX_REASON_BYTES` of UTF-8 at a code point. Nothing is trimmed.
    """
    if len(text) > _CLEANED_AT_ONCE:
        return _clean_in_parts(text)
    if text.isascii() and text.isprintable():
        return text[:MAX_REASON_BYTES]
    if _SURROGATE.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return cut(_CONTROL.sub("", text), MAX_REASON_BYTES)


def _clean_in_parts(text: str) -> str:
    """Clean a long text up to where enough of it is left: what follows is cut anyway, however much there is."""
    kept, start = "", 0
    while start < len(text) and len(kept) < MAX_REASON_BYTES:
        end = start + _CLEANED_AT_ONCE
        if "\ud800" <= text[end - 1 : end] <= "\udbff":  # perhaps the first half of a pair
            end -= 1
        kept += clean_reason(text[start:end])
        start = end
    return cut(kept, MAX_REASON_BYTES)


def cut(text: str, max_bytes: int) -> str:
    """Return the longest beginning of `text` that takes at most `max_bytes` in UTF-8; no character is split.

    A lone surrogate counts as three bytes, as the U+FFFD that stands for it would.
    """
    if max_bytes <= 0:
        return ""
    start = text[:max_bytes]  # a character takes at least one byte: what follows can never fit
    if start.isascii():
        return start
    data = start.encode("utf-8", "surrogatepass")
    if len(data) <= max_bytes:
        return start
    end = max_bytes
    while data[end] & 0xC0 == 0x80:  # within a character: back to its first byte
        end -= 1
    return data[:end].decode("utf-8", "surrogatepass")


def size_in_utf8(text: str) -> int:
    """Return how many bytes `text` takes in UTF-8. A lone surrogate counts as three."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def shown(text: str) -> str:
    r"""Return `text` for a terminal, a log line or a page: one line, with no way to move, hide or turn round anything.

    Control (Cc) and format characters (Cf), line and paragraph separators and lone surrogates appear as ``\u202e``,
    beyond U+FFFF as ``\U000e0001``. Everything else, backslashes too, stays as it is: this is for readers, not for
    reading back. A page still has to escape HTML.
    """
    if text.isprintable():  # nothing of the hidden categories
        return text
    return "".join(c if c.isprintable() or unicodedata.category(c) not in _HIDDEN else _escape(c) for c in text)


def shortened(text: str, most: int = 120) -> str:
    """Return `text` as `shown`, cut to about `most` characters."""
    return shown(text if len(text) <= most else text[: most - 3] + "...")


def quoted(text: str, most: int = 80) -> str:
    """Return `text` as `shortened`, in quotes: for error messages."""
    return f"'{shortened(text, most)}'"


def without_user_info(text: str) -> str:
    """Return `text` with the user info of each URL in it left out (R2.4)."""
    return _USER_INFO.sub("...@", text)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
