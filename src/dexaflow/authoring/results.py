"""What a task may return: JSON of at most 64 KiB."""

import json
import math
from typing import Any

from dexaflow.base.errors import DexaflowError

__all__ = ["MAX_RESULT_BYTES", "ResultError", "checked_result"]

MAX_RESULT_BYTES = 65_536  # results are passed through the control plane; larger things belong in storage
_MAX_DEPTH = 100


class ResultError(DexaflowError):
    """What a task returned cannot be passed on; says where in it and what to do."""


def checked_result(value: Any) -> Any:
    """Return `value` as the JSON that will be passed on: tuples as lists, subclasses as what they extend.

    Raises:
        ResultError: It is not JSON, or more than 65,536 bytes of it.
    """
    try:
        plain = _plain(value, "result", 0)
        size = len(json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode())
    except UnicodeEncodeError:
        raise ResultError("result: holds a lone surrogate, which is not text; decode it first") from None
    except ValueError as error:  # an int of more digits than Python prints
        raise ResultError(f"result: {error}") from None
    if size > MAX_RESULT_BYTES:
        raise ResultError(
            f"result: is {size} bytes of JSON, at most {MAX_RESULT_BYTES} can be passed; store it and return its place"
        )
    return plain


def _plain(value: Any, where: str, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise ResultError(f"{where[:60]}...: is nested deeper than {_MAX_DEPTH}, or holds itself")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ResultError(f"{where}: {value!r} is not JSON; return None instead")
        return float(value)
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
    if isinstance(value, dict):
        result = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise ResultError(f"{where}: the key {ascii(key)[:60]} is {type(key).__name__}; keys must be text")
            result[str.__str__(key)] = _plain(item, f"{where}[{ascii(key)[:60]}]", depth + 1)
        return result
    raise ResultError(f"{where}: {type(value).__name__} is not JSON; return text, numbers, lists and dicts")
