"""An endpoint that closes connections just when the next question comes, for as long as one likes.

`python -m tests.soak.races` does it for ten minutes.
"""

import asyncio
import contextlib
import random
import ssl
import threading
from collections import Counter
from collections.abc import Iterator

import trustme
import uvloop

from dexaflow.base.errors import HookBroken
from tests.hooks.asking import LONG, a_transport
from tests.hooks.misbehaving import Endpoint, Peer, answer

__all__ = ["keep_alive_races"]

CLOSES = (Peer.close, Peer.reset, Peer.cut)
AROUND_SECONDS = 0.002  # what a question takes here: neither side knows who is first


async def _closes_when_it_likes(peer: Peer) -> None:
    while (body := await peer.question()) is not None:
        peer.send(answer(body))
        peer.questions.clear()
        if random.random() < 0.5:
            await peer.drain()
            await asyncio.sleep(random.random() * AROUND_SECONDS)
            random.choice(CLOSES)(peer)
            return


@contextlib.contextmanager
def _apart(tls: ssl.SSLContext | None) -> Iterator[Endpoint]:
    """Run the endpoint in a thread of its own, so that its closing and our asking cross on the way."""
    endpoint, up, down = Endpoint(_closes_when_it_likes, tls), threading.Event(), threading.Event()

    async def serve() -> None:
        async with endpoint:
            up.set()
            await asyncio.to_thread(down.wait)

    thread = threading.Thread(target=lambda: uvloop.run(serve()), daemon=True)
    thread.start()
    assert up.wait(LONG)
    try:
        yield endpoint
    finally:
        down.set()
        thread.join()


async def keep_alive_races(seconds: float, tls: ssl.SSLContext | None, ca: trustme.CA) -> Counter[str]:
    """Ask for so long; each answer must be the question's own. Returns what came of the questions, and connections."""
    outcomes: Counter[str] = Counter()
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    with _apart(tls) as endpoint:
        async with a_transport(endpoint.url, ca) as transport:

            async def ask(asker: int) -> None:
                number = 0
                while loop.time() < until:
                    number += 1
                    body = b"%d of %d" % (number, asker)
                    try:
                        response = await transport.post(body)
                        outcomes["answered" if response.body == body else "somebody else's answer"] += 1
                    except HookBroken as error:
                        outcomes[error.cause] += 1
                    await asyncio.sleep(random.random() * AROUND_SECONDS)

            await asyncio.gather(*[ask(asker) for asker in range(24)])
            assert transport.waiting == 0
            assert transport.open_connections <= 16
            assert endpoint.most_open <= 16 + 16  # that it has not yet seen us close
        outcomes["connections"] = len(endpoint.peers)
    return outcomes
