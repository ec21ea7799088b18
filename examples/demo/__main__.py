"""`python -m examples.demo`, which `make demo` runs."""

import signal
import sys

if __name__ == "__main__":
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the story minds it: Ctrl-C among imports is no traceback
    from examples.demo.story import main

    sys.exit(main())
