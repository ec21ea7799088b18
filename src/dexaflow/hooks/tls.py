"""Judging the endpoint's certificate as Go's client would (R7.6)."""

import ssl
from typing import Final

__all__ = ["TrustError", "client_context"]

_OPTIONS: Final = ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION


class TrustError(ValueError):
    """A CA bundle cannot be used; ``str()`` says why, in words that do not name the file."""


def client_context(bundle: bytes | None) -> ssl.SSLContext:
    """Return a context that accepts certificates under `bundle`, or under the system's trust when None.

    TLS 1.2 or later; names from the alternative names alone, IP addresses too; whatever stands in the bundle is a
    root of trust, an intermediate as well; no demand for extensions that private CAs often lack.

    Args:
        bundle: PEM certificates; text between them is ignored.

    Raises:
        TrustError: no certificate in the bundle, or one that cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # check_hostname and CERT_REQUIRED are its defaults
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    # Set, not added to: Python 3.13 demands RFC 5280 to the letter by default (VERIFY_X509_STRICT), Go does not.
    context.verify_flags = ssl.VERIFY_X509_TRUSTED_FIRST | ssl.VERIFY_X509_PARTIAL_CHAIN
    context.options |= _OPTIONS
    context.set_alpn_protocols(["http/1.1"])
    if bundle is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        return context
    try:
        # Comments may be in any encoding; PEM itself is ASCII.
        context.load_verify_locations(cadata=bundle.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None)
        detail = f" ({reason.lower().replace('_', ' ')})" if isinstance(reason, str) else ""
        raise TrustError(f"it is not a bundle of PEM certificates{detail}") from None
    if not context.cert_store_stats()["x509"]:
        raise TrustError("there is no certificate in it")
    return context
