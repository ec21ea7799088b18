"""`python -m tests.soak.races [SECONDS]`: an endpoint that closes just when we ask, for ten minutes."""

import asyncio
import ssl
import sys

import trustme
import uvloop

from tests.hooks.races import keep_alive_races


def main(seconds: int = 600) -> None:
    """Print what came of the questions; fails when one was not answered, or with another's answer."""
    ca = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    for name, run in (("asyncio", asyncio.run), ("uvloop", uvloop.run)):
        for tls in (None, context):
            outcomes = run(keep_alive_races(seconds / 4, tls, ca))
            print(f"{name}, {'TLS' if tls else 'plain'}: {dict(outcomes)}", flush=True)
            assert set(outcomes) == {"answered", "connections"}


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
