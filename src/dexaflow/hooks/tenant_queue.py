"""Who waits for one of the few places at a hook."""

from collections import deque
from typing import Generic, TypeVar

__all__ = ["TenantQueue"]

T = TypeVar("T")


class TenantQueue(Generic[T]):
    """First come, first served within a tenant; the tenants take turns: one's crowd is in no other's way (R6.2).

    A tenant that begins to wait is behind each of the others once. Adding and taking cost the same however many wait.
    """

    __slots__ = ("_lines", "_size")

    def __init__(self) -> None:
        self._lines: dict[str, deque[T]] = {}  # by tenant, none empty; whose turn it is comes first
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def append(self, tenant_id: str, item: T) -> None:
        """Let `item` wait behind all others of its tenant."""
        line = self._lines.get(tenant_id)
        if line is None:
            line = self._lines[tenant_id] = deque()
        line.append(item)
        self._size += 1

    def popleft(self) -> T:
        """Take whoever is next. Raises `IndexError` when nobody waits."""
        if not self._lines:
            raise IndexError("nobody waits")
        tenant_id = next(iter(self._lines))
        line = self._lines.pop(tenant_id)
        item = line.popleft()
        if line:
            self._lines[tenant_id] = line  # behind the others
        self._size -= 1
        return item

    def remove(self, tenant_id: str, item: T) -> None:
        """Let `item` wait no longer. Raises `ValueError` when it does not."""
        line = self._lines.get(tenant_id, deque[T]())
        line.remove(item)
        if not line:
            del self._lines[tenant_id]
        self._size -= 1
