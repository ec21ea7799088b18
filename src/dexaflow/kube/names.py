r"""Kubernetes' rules for keys, values and names, as its API server has them.

Each function returns what is wrong, as half a line that follows the name of the thing, or None. Lengths are in bytes of
UTF-8. Any text may be given, lone surrogates too. A whole match is asked for everywhere: ``$`` would let a final
newline through.
"""

import re

from dexaflow.base.text import size_in_utf8

__all__ = [
    "RESERVED",
    "annotation_key_problem",
    "dns1123_label_problem",
    "dns1123_subdomain_problem",
    "is_plain",
    "is_reserved",
    "label_key_problem",
    "label_value_problem",
    "priority_class_problem",
    "service_account_problem",
]

RESERVED = ("leoflow.io/", "dexaflow.io/")  # R5.2: keys of labels and annotations that are the control plane's own

MAX_NAME_BYTES = 63  # the name part of a key, a label's value, a DNS label
MAX_SUBDOMAIN_BYTES = 253  # its labels have no limit of their own

# Most keys and values by far: of no prefix, short, and right. What is not is looked into.
_PLAIN = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_NAME = re.compile(r"(?:[A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_DNS_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")

_NAME_RULE = "must be letters, digits, '-', '_' and '.', with a letter or digit at both ends"
_SUBDOMAIN_RULE = "must be lower case letters, digits, '-' and '.', with a letter or digit at both ends of each part"
_LABEL_RULE = "must be lower case letters, digits and '-', with a letter or digit at both ends"

# What Go's lower-casing makes ASCII of, besides A to Z: the Kelvin sign and the capital I with a dot. Python's own
# lower() makes two characters of the latter. Whatever else is not ASCII is refused in either case.
_TO_LOWER = str.maketrans(
    {**{chr(code): chr(code + 32) for code in range(ord("A"), ord("Z") + 1)}, "\u212a": "k", "\u0130": "i"}
)


def is_plain(key: str, value: str) -> bool:
    """Whether a label is as most are: right, its key without a prefix, its value not empty. Others may be right too."""
    return _PLAIN.fullmatch(key) is not None and _PLAIN.fullmatch(value) is not None


def label_key_problem(key: str) -> str | None:
    """A key of a label, node selector or toleration: a name, with a DNS subdomain and a slash before it if wanted."""
    if _PLAIN.fullmatch(key):
        return None
    prefix, slash, name = key.rpartition("/")
    if slash:
        if "/" in prefix:
            return "the key may have one '/' at most"
        if not prefix:
            return "the prefix before '/' must not be empty"
        problem = dns1123_subdomain_problem(prefix)
        if problem is not None:
            return f"the prefix before '/' {problem}"
    part = "the name after '/'" if slash else "the key"
    if not name:
        return f"{part} must not be empty"
    if _too_long(name, MAX_NAME_BYTES):
        return f"{part} must be at most {MAX_NAME_BYTES} bytes, has {size_in_utf8(name)}"
    return None if _NAME.fullmatch(name) else f"{part} {_NAME_RULE}"


def annotation_key_problem(key: str) -> str | None:
    """A key of an annotation: as that of a label after lower-casing as Go does it, so that capitals are fine."""
    return None if _PLAIN.fullmatch(key) else label_key_problem(key.translate(_TO_LOWER))


def label_value_problem(value: str) -> str | None:
    """A value of a label, node selector or toleration; may be empty."""
    if not value or _PLAIN.fullmatch(value):
        return None
    if _too_long(value, MAX_NAME_BYTES):
        return f"must be at most {MAX_NAME_BYTES} bytes, has {size_in_utf8(value)}"
    return None if _NAME.fullmatch(value) else _NAME_RULE


def dns1123_subdomain_problem(name: str) -> str | None:
    """A DNS subdomain, as most objects are named by."""
    if not name:
        return "must not be empty"
    if _too_long(name, MAX_SUBDOMAIN_BYTES):  # before the pattern, whose work grows faster than the text
        return f"must be at most {MAX_SUBDOMAIN_BYTES} bytes, has {size_in_utf8(name)}"
    return None if _DNS_SUBDOMAIN.fullmatch(name) else _SUBDOMAIN_RULE


def dns1123_label_problem(name: str) -> str | None:
    """A DNS label, as namespaces are named by."""
    if not name:
        return "must not be empty"
    if _too_long(name, MAX_NAME_BYTES):
        return f"must be at most {MAX_NAME_BYTES} bytes, has {size_in_utf8(name)}"
    return None if _DNS_LABEL.fullmatch(name) else _LABEL_RULE


def service_account_problem(name: str) -> str | None:
    """A service account's name. Empty is a problem here; in a pod it means "not set" and is not asked about."""
    return dns1123_subdomain_problem(name)


def priority_class_problem(name: str) -> str | None:
    """A priority class's name. Empty is a problem here; in a pod it means "not set" and is not asked about."""
    return dns1123_subdomain_problem(name)


def is_reserved(key: str) -> bool:
    """Whether a label's or annotation's key is the control plane's own: the literal prefix, nothing folded (R5.2)."""
    return key.startswith(RESERVED)


def _too_long(text: str, most: int) -> bool:
    return len(text) > most or (not text.isascii() and size_in_utf8(text) > most)
