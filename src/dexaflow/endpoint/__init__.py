"""For whoever writes the other side: the hook function that runs in process, behind a URL.

`asgi_app` turns it into an ASGI application for any server; `dexaflow endpoint serve module:hook` runs it. The
function is the same: it takes a `Request` and returns `admit(...)`, `hold(reason)` or `refuse(reason)`.

What is not a decision leaves as an HTTP error with an RFC 9457 body, never as a decision: the control plane treats it
as a broken hook. Nothing of the hook's exception goes over the wire; it is in this process's log.

    app = asgi_app(my_hook, token=lambda: Path("/etc/policy/token").read_text().strip())
"""

from dexaflow.admission.hook_shape import Hook
from dexaflow.endpoint.app import asgi_app

__all__ = ["Hook", "asgi_app"]
