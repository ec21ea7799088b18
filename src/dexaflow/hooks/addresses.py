"""From a host name to addresses, without ever blocking the event loop, and in the order in which they are tried."""

import asyncio
import contextlib
import ipaddress
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Final, cast

from dexaflow.hooks.threads import DaemonThreads

__all__ = ["Address", "NotLoopback", "Resolver", "in_turns", "lookup"]

MAX_LOOKUPS: Final = 4  # at once; a stuck one keeps its thread until the C library gives up
PATIENCE_SECONDS: Final = 0.25  # a question does not rely on a look-up that is older than this
MAX_ADDRESSES: Final = 16  # tried for one connection


SockAddr = tuple[str, int] | tuple[str, int, int, int]
_FAMILIES: Final[Sequence[int]] = (socket.AF_INET, socket.AF_INET6)


@dataclass(frozen=True, slots=True)
class Address:
    """One address of a host: what `socket.connect` takes."""

    family: socket.AddressFamily
    sockaddr: SockAddr

    def __str__(self) -> str:
        host, port = self.sockaddr[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def loopback(self) -> bool:
        """Whether it is this machine's own; the mapped form `::ffff:127.0.0.1` does not count."""
        address = ipaddress.ip_address(self.sockaddr[0].partition("%")[0])
        if address.version == 6:
            return address == ipaddress.IPv6Address("::1")
        return address.is_loopback


class NotLoopback(OSError):  # noqa: N818 - says what the address is
    """A host that may only be this machine resolved to another address (R2.4)."""


Lookup = Callable[[str, int], Sequence[Address]]


def lookup(host: str, port: int) -> Sequence[Address]:
    """Ask the system for the addresses of `host`; blocks. Raises `OSError`."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return [Address(family, cast(SockAddr, address)) for family, _, _, _, address in found if family in _FAMILIES]


def in_turns(addresses: Sequence[Address]) -> list[Address]:
    """Return the addresses in the order in which to try them: the families in turns (RFC 8305, section 4)."""
    distinct = list(dict.fromkeys(addresses))
    if not distinct:
        return []
    first = [a for a in distinct if a.family == distinct[0].family]
    other = [a for a in distinct if a.family != distinct[0].family]
    turns = chain.from_iterable(zip_longest(first, other))
    return [address for address in turns if address is not None][:MAX_ADDRESSES]


class Resolver:
    """Looks up one host, in threads that can be given up.

    Questions share a look-up that is under way, so that sixteen new connections ask the name server once. A look-up
    that is stuck does not bind those who come later: they start another, up to `MAX_LOOKUPS`, and the first good
    answer serves everybody who waits. One that is alone and stuck gets a second beside it: a single packet lost on
    the way to the name server would else cost the question, since the C library sends the next one after seconds.
    Nothing is kept: the next connection asks anew.

    Args:
        host: A name or an address; an address is taken as it is, without a thread.
        loopback_only: Refuse an answer in which any address is not loopback (R2.4); checked every time.
        lookup: Blocking; replaced in tests.
    """

    def __init__(self, host: str, port: int, *, loopback_only: bool = False, lookup: Lookup = lookup) -> None:
        self._host, self._port = host, port
        self._loopback_only = loopback_only
        self._lookup = lookup
        self._threads = DaemonThreads("dexaflow-resolver")
        self._running: list[_Lookup] = []  # oldest first
        self._literal = _literal(host, port)

    async def resolve(self) -> Sequence[Address]:
        """Return the host's addresses in the order in which to try them. Waits as long as the caller does.

        Raises:
            NotLoopback: one of them is not loopback, though all must be.
            OSError: there are none, or the name cannot be looked up.
        """
        if self._literal is not None:
            return self._checked([self._literal])
        waiter: asyncio.Future[Sequence[Address] | OSError] = asyncio.get_running_loop().create_future()
        self._join().waiters.add(waiter)
        try:
            outcome = await waiter
        finally:
            for running in self._running:
                running.waiters.discard(waiter)
        if isinstance(outcome, OSError):
            raise outcome
        return self._checked(outcome)

    def close(self) -> None:
        """Let idle threads end; one that is stuck is left to itself."""
        self._threads.close()

    def _checked(self, addresses: Sequence[Address]) -> Sequence[Address]:
        if not addresses:
            raise OSError(f"{self._host} has no address")
        if self._loopback_only and not all(address.loopback for address in addresses):
            raise NotLoopback(f"{self._host} resolves to an address that is not loopback; nothing is sent there")
        return in_turns(addresses)

    def _join(self) -> "_Lookup":
        """Return the look-up to wait for, started now if none is young enough."""
        now = time.monotonic()
        if self._running:
            latest = self._running[-1]
            if now - latest.started < PATIENCE_SECONDS or len(self._running) >= MAX_LOOKUPS:
                return latest
        started = self._begin(now)
        asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._second, started)
        return started

    def _second(self, first: "_Lookup") -> None:
        """Start one more look-up for those who wait for the first, if that is still the only one."""
        if self._running == [first] and first.waiters:
            with contextlib.suppress(OSError):  # no thread to be had: the first goes on
                self._begin(time.monotonic()).waiters |= first.waiters

    def _begin(self, now: float) -> "_Lookup":
        started = _Lookup(now, asyncio.get_running_loop())
        try:
            self._threads.run(lambda: self._look_up(started))
        except RuntimeError as error:
            raise OSError(f"{self._host} cannot be looked up: {error}") from error
        self._running.append(started)
        return started

    def _look_up(self, mine: "_Lookup") -> None:
        """The thread's part."""
        outcome: Sequence[Address] | OSError
        try:
            outcome = self._lookup(self._host, self._port)
        except OSError as error:
            outcome = OSError(f"{self._host} cannot be looked up: {error.strerror or error}")
        except BaseException as error:  # noqa: BLE001 - UnicodeError of an odd name, say; whoever waits must hear of it
            outcome = OSError(f"{self._host} cannot be looked up: {type(error).__name__}")
        try:
            mine.loop.call_soon_threadsafe(self._ended, mine, outcome)
        except RuntimeError:
            pass  # the loop is closed: nobody waits

    def _ended(self, mine: "_Lookup", outcome: Sequence[Address] | OSError) -> None:
        self._running.remove(mine)
        served = [mine]
        if not isinstance(outcome, OSError):
            served += self._running  # those who wait for a stuck one as well
        for lookup_ in served:
            for waiter in lookup_.waiters:
                if not waiter.done():
                    waiter.set_result(outcome)


class _Lookup:
    """One look-up under way, and who waits for it."""

    __slots__ = ("loop", "started", "waiters")

    def __init__(self, started: float, loop: asyncio.AbstractEventLoop) -> None:
        self.started = started
        self.loop = loop
        self.waiters: set[asyncio.Future[Sequence[Address] | OSError]] = set()


def _literal(host: str, port: int) -> Address | None:
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return None
    if version == 6:
        return Address(socket.AF_INET6, (host, port, 0, 0))
    return Address(socket.AF_INET, (host, port))
