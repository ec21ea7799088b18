"""Where the `dexaflow` program begins: nothing heavy is loaded before Ctrl-C is seen to."""

import signal

__all__ = ["main"]


def main() -> None:
    """Load the command line and run it. Ctrl-C while it loads ends the program at once, without a traceback."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from dexaflow.cli.main import main as run

    signal.signal(signal.SIGINT, before)
    run()
