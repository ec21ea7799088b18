"""Bodies that come in: JSON that every reader downstream reads alike, or a problem."""

import json
import math
from typing import Any

import msgspec

from dexaflow.api.problems import Problem
from dexaflow.base.text import quoted

__all__ = ["MAX_BODY_BYTES", "MAX_CONF_BYTES", "check_body", "check_conf"]

MAX_BODY_BYTES = 512 * 1024  # a run's conf at its largest, every character of it escaped, and the rest of the body
MAX_CONF_BYTES = 64 * 1024  # as small as what tasks pass to each other
MAX_DEPTH = 64
_INT64 = range(-(2**63), 2**63)


def check_body(body: bytes) -> None:
    """Check that a body is JSON in UTF-8 without what databases and other readers choke on.

    That is: no NaN or infinity, no half of a surrogate pair, no NUL, no number beyond 64 bits, no key given twice, no
    nesting deeper than 64.

    Raises:
        Problem: 400 for what is not JSON, 422 for the rest.
    """
    try:
        value: Any = msgspec.json.decode(body)
    except RecursionError:
        raise Problem(422, f"the body is nested deeper than {MAX_DEPTH} levels; flatten it") from None
    except (msgspec.MsgspecError, ValueError) as error:
        if _has_half_a_pair(body):
            raise Problem(422, "the body holds half of a surrogate pair; send whole characters") from None
        raise Problem(400, f"the body is not JSON: {error}"[:300]) from None
    waiting: list[tuple[Any, int]] = [(value, 0)]
    while waiting:
        found, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise Problem(422, f"the body is nested deeper than {MAX_DEPTH} levels; flatten it")
        match found:
            case str():
                _check_text(found)
            case bool() | None:
                pass
            case int():
                if found not in _INT64:
                    raise Problem(
                        422, "the body holds a number beyond 64 bits; send a smaller one, or text where it may be"
                    )
            case float():
                if not math.isfinite(found):
                    raise Problem(
                        422, "the body holds a number beyond 64 bits; send a smaller one, or text where it may be"
                    )
            case list():
                waiting.extend((item, depth + 1) for item in found)
            case dict():
                for key, item in found.items():
                    _check_text(key)
                    waiting.append((item, depth + 1))
    json.loads(body, object_pairs_hook=_each_once)  # what was given twice is gone from `value`


def _has_half_a_pair(body: bytes) -> bool:
    r"""Whether a body is JSON but for a lone ``\ud800``, which no UTF-8 can hold: msgspec has no words for that."""
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def _each_once(pairs: list[tuple[str, Any]]) -> None:
    keys = {key for key, _ in pairs}
    if len(keys) < len(pairs):
        for key, _ in pairs:
            if key not in keys:
                raise Problem(422, f"the body gives the key {quoted(key)} twice; give it once")
            keys.remove(key)


def _check_text(text: str) -> None:
    if "\0" in text:
        raise Problem(422, "the body holds a NUL character; leave it out")


def check_conf(conf: dict[str, Any]) -> dict[str, Any]:
    """Return a run's conf if it is small enough. Raises `Problem` 422."""
    size = len(msgspec.json.encode(conf))
    if size > MAX_CONF_BYTES:
        raise Problem(
            422,
            f"conf is {size} bytes of JSON; at most {MAX_CONF_BYTES} are kept, pass a reference to larger data",
            [("body.conf", f"larger than {MAX_CONF_BYTES} bytes")],
        )
    return conf
