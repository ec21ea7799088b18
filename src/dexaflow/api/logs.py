"""Pieces of task logs: where one ends, and whether more may come."""

from dataclasses import dataclass

from dexaflow.api.services import Services
from dexaflow.base.errors import StoreError
from dexaflow.model.states import ENDED, State
from dexaflow.store.reading_rows import AttemptRow

__all__ = ["LogPiece", "read_piece", "whole_lines"]

# An earlier try is over even in a state that is not an end, such as up_for_retry.
_OVER = ENDED | {State.UP_FOR_RETRY}


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Bytes of a log from some offset. `complete`: the try is over and nothing follows."""

    data: bytes
    next_offset: int
    complete: bool


async def read_piece(services: Services, row: AttemptRow, offset: int, limit: int) -> LogPiece:
    """Read a piece of the log of the try that `row` was read of, before this: so an end seen there is an end here.

    Raises `StoreError` when the log cannot be read.
    """
    try:
        data = await services.read(services.logs.read, row.run_id, row.task_id, row.try_number, offset, limit)
    except OSError as error:
        raise StoreError(f"the log cannot be read: {error.strerror or type(error).__name__}") from error
    over = State(row.state) in _OVER
    return LogPiece(data, offset + len(data), complete=over and len(data) < limit)


def whole_lines(piece: LogPiece, offset: int) -> LogPiece:
    """Cut a piece back to whole lines, so that no line and no character is split between two pieces.

    The last piece stays whole, and so does one that is a single line longer than itself, but for a split character.
    """
    if piece.complete or piece.data.endswith(b"\n") or not piece.data:
        return piece
    end = piece.data.rfind(b"\n") + 1
    if end == 0:
        end = _before_split_character(piece.data)
    return LogPiece(piece.data[:end], offset + end, complete=False)


def _before_split_character(data: bytes) -> int:
    """Return the length of `data` without a UTF-8 character that is cut off at its end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue  # inside a character
        needs = 2 if byte >> 5 == 0b110 else 3 if byte >> 4 == 0b1110 else 4 if byte >> 3 == 0b11110 else 1
        return len(data) - back if needs > back else len(data)
    return len(data)
