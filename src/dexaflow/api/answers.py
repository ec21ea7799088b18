"""Bodies that go out. No text from outside can break one: what UTF-8 or JSON cannot hold is replaced, never fatal."""

import json
import math
from typing import Any

import msgspec
from starlette.responses import Response

__all__ = ["answer", "encode", "kept_json"]

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


def encode(value: object) -> bytes:
    """Return `value` as JSON. Never raises for text that UTF-8 cannot hold (lone surrogates become U+FFFD)."""
    try:
        return _encoder.encode(value)
    except (UnicodeEncodeError, msgspec.MsgspecError, OverflowError, RecursionError):
        return json.dumps(_encodable(value), ensure_ascii=False, separators=(",", ":")).encode()


def answer(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON response."""
    return Response(encode(value), status, media_type="application/json", headers=headers)


def kept_json(document: str | bytes | None, default: Any) -> Any:  # Any: whatever JSON the database keeps
    """Return a JSON document that the database keeps, `default` when it cannot be read."""
    if document is None:
        return default
    try:
        return _decoder.decode(document)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    try:  # what Python's own decoder lets through: halves of surrogate pairs, NaN
        return _encodable(json.loads(document))
    except (ValueError, RecursionError):
        return default


def _encodable(value: Any, depth: int = 0) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if depth > 100:
        return None
    if isinstance(value, dict):
        return {_encodable(str(k)): _encodable(v, depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encodable(v, depth + 1) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
