"""The endpoint's certificate is judged as Go's client would (R7.6)."""

import asyncio
import datetime
import ipaddress
import socket
import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dexaflow.base.errors import HookBroken
from dexaflow.hooks.addresses import Address, Resolver
from dexaflow.hooks.tls import TrustError, client_context
from dexaflow.hooks.transport import Transport
from dexaflow.hooks.url import parse_webhook_url
from tests.hooks.asking import LONG, a_transport, broken
from tests.hooks.misbehaving import Endpoint, Peer, answer, answering
from tests.hooks.servers import program

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


class Signed:
    """A certificate and its key."""

    def __init__(
        self,
        name: str,
        *,
        by: "Signed | None" = None,
        sans: Sequence[x509.GeneralName] | None = None,
        is_ca: bool = False,
        extensions: bool = True,
        usage: x509.ObjectIdentifier | None = None,
        key: rsa.RSAPrivateKey | None = None,
    ) -> None:
        self.key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey = key or ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = (
            x509.CertificateBuilder()
            .subject_name(self.name)
            .issuer_name(by.name if by else self.name)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - DAY)
            .not_valid_after(NOW + DAY)
        )
        if is_ca:
            # As private CAs write it: not critical, no key usage, no key identifiers.
            builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=extensions)
        if sans is not None:
            builder = builder.add_extension(x509.SubjectAlternativeName(sans), critical=False)
        if usage is not None:
            builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        self.certificate = builder.sign(by.key if by else self.key, hashes.SHA256())

    @property
    def pem(self) -> bytes:
        """The certificate."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """Its key."""
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def signed_with_sha1(self, by: "Signed", folder: Path) -> "Signed":
        """Have a self-signed certificate signed as nobody does any more, `cryptography` neither."""
        for name, content in (("this.pem", self.pem), ("by.pem", by.pem + by.key_pem)):
            (folder / name).write_bytes(content)
        command = [program("openssl"), "x509", "-in", "this.pem", "-CA", "by.pem", "-CAkey", "by.pem", "-sha1"]
        pem = subprocess.run([*command, "-set_serial", "7"], cwd=folder, check=True, capture_output=True).stdout
        self.certificate = x509.load_pem_x509_certificate(pem)
        assert isinstance(self.certificate.signature_hash_algorithm, hashes.SHA1)
        return self

    def server(self, folder: Path, *chain: "Signed") -> ssl.SSLContext:
        """A server's context with this certificate and what it sends along."""
        file = folder / "server.pem"
        file.write_bytes(self.key_pem + self.pem + b"".join(link.pem for link in chain))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_ciphers("DEFAULT:@SECLEVEL=0")  # so that it is the client which says no
        context.load_cert_chain(file)
        return context


LOCALHOST = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]


async def ask(tls: ssl.SSLContext, bundle: bytes | None, host: str = "localhost") -> str:
    """Ask an endpoint with that certificate; return the cause of failure, "" when there is none."""
    async with Endpoint(answering(), tls) as endpoint:
        url = parse_webhook_url(f"https://{host}:{endpoint.port}/")
        here = [Address(socket.AF_INET, ("127.0.0.1", endpoint.port))]
        resolver = Resolver(url.host, url.port, lookup=lambda host, port: here)
        async with Transport(url, timeout=LONG, tls=client_context(bundle), resolver=resolver) as transport:
            try:
                await transport.post(b"{}")
            except HookBroken as error:
                assert endpoint.questions == []
                assert not error.timed_out
                return error.cause
    return ""


def issued(ca: trustme.CA, *names: str, **more: object) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(*names, **more).configure_cert(context)  # type: ignore[arg-type]
    return context


@pytest.mark.parametrize(
    ("names", "host"),
    [
        (["localhost"], "localhost"),
        (["localhost"], "localhost."),
        (["LOCALHOST"], "localhost"),
        (["127.0.0.1"], "127.0.0.1"),
    ],
)
async def test_name_or_address_in_the_alternative_names_is_accepted(
    ca: trustme.CA, names: list[str], host: str
) -> None:
    assert await ask(issued(ca, *names), ca.cert_pem.bytes(), host) == ""


@pytest.mark.parametrize(
    ("names", "host"),
    [
        (["other.test"], "localhost"),
        (["localhost"], "127.0.0.1"),
        (["127.0.0.1"], "localhost"),
        (["127.0.0.2"], "127.0.0.1"),
        (["*.localhost"], "localhost"),
    ],
)
async def test_certificate_for_another_name_is_refused(ca: trustme.CA, names: list[str], host: str) -> None:
    assert "certificate is not accepted" in await ask(issued(ca, *names), ca.cert_pem.bytes(), host)


@pytest.mark.parametrize("sans", [None, [x509.DNSName("other.test")], [x509.RFC822Name("a@localhost")]])
async def test_common_name_is_no_fallback(tmp_path: Path, sans: list[x509.GeneralName] | None) -> None:
    root = Signed("root", is_ca=True)
    leaf = Signed("localhost", by=root, sans=sans)
    assert "certificate is not accepted" in await ask(leaf.server(tmp_path), root.pem)


async def test_expired_and_not_yet_valid_certificates_are_refused(ca: trustme.CA) -> None:
    expired = issued(ca, "localhost", not_before=NOW - 3 * DAY, not_after=NOW - DAY)
    early = issued(ca, "localhost", not_before=NOW + DAY, not_after=NOW + 3 * DAY)
    assert "expired" in await ask(expired, ca.cert_pem.bytes())
    assert "not yet valid" in await ask(early, ca.cert_pem.bytes())


async def test_certificate_of_another_authority_is_refused(ca: trustme.CA) -> None:
    assert "certificate is not accepted" in await ask(issued(trustme.CA(), "localhost"), ca.cert_pem.bytes())


async def test_bundle_is_used_instead_of_the_systems_trust(
    ca: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An authority that the system trusts signs nothing for an endpoint with a bundle of its own."""
    system = trustme.CA()
    system.cert_pem.write_to_path(str(tmp_path / "system.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "system.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert await ask(issued(system, "localhost"), None) == ""
    assert "certificate is not accepted" in await ask(issued(system, "localhost"), ca.cert_pem.bytes())
    assert "certificate is not accepted" in await ask(issued(ca, "localhost"), None)


async def test_intermediate_in_the_bundle_is_a_root_of_trust(tmp_path: Path) -> None:
    """Whether or not the endpoint sends it along, and though its root is unknown."""
    root = Signed("root", is_ca=True)
    middle = Signed("middle", by=root, is_ca=True)
    leaf = Signed("leaf", by=middle, sans=LOCALHOST)
    assert await ask(leaf.server(tmp_path), middle.pem) == ""
    assert await ask(leaf.server(tmp_path, middle), middle.pem) == ""
    assert await ask(leaf.server(tmp_path, middle), root.pem) == ""
    assert "certificate is not accepted" in await ask(leaf.server(tmp_path), root.pem)


async def test_certificate_of_the_endpoint_itself_may_be_the_bundle(tmp_path: Path) -> None:
    """Self-signed and pinned: Go takes it."""
    leaf = Signed("leaf", sans=LOCALHOST)
    assert await ask(leaf.server(tmp_path), leaf.pem) == ""


async def test_extensions_that_private_authorities_lack_are_not_demanded(tmp_path: Path) -> None:
    root = Signed("root", is_ca=True, extensions=False)
    leaf = Signed("leaf", by=root, sans=LOCALHOST)
    assert await ask(leaf.server(tmp_path), root.pem) == ""


async def test_certificate_for_clients_only_is_refused(tmp_path: Path) -> None:
    root = Signed("root", is_ca=True)
    leaf = Signed("leaf", by=root, sans=LOCALHOST, usage=ExtendedKeyUsageOID.CLIENT_AUTH)
    assert "certificate is not accepted" in await ask(leaf.server(tmp_path), root.pem)


async def test_certificate_signed_by_a_leaf_is_refused(tmp_path: Path) -> None:
    root = Signed("root", is_ca=True)
    no_ca = Signed("no ca", by=root, sans=LOCALHOST)
    leaf = Signed("leaf", by=no_ca, sans=LOCALHOST)
    assert "certificate is not accepted" in await ask(leaf.server(tmp_path, no_ca), root.pem)


async def test_self_signed_certificate_that_is_not_in_the_bundle_is_refused(ca: trustme.CA, tmp_path: Path) -> None:
    leaf = Signed("leaf", sans=LOCALHOST)
    assert "certificate is not accepted" in await ask(leaf.server(tmp_path), ca.cert_pem.bytes())


async def test_weak_keys_and_digests_are_refused(tmp_path: Path) -> None:
    """A key of 1,024 bits, a signature by SHA-1: of the endpoint's own certificate, and of one above it."""
    weak = rsa.generate_private_key(65537, 1024)
    root = Signed("root", is_ca=True)
    weak_root = Signed("weak root", is_ca=True, key=weak)
    middle = Signed("middle", is_ca=True).signed_with_sha1(root, tmp_path)
    for leaf, chain, bundle in (
        (Signed("leaf", by=root, sans=LOCALHOST, key=weak), [], root),
        (Signed("leaf", sans=LOCALHOST).signed_with_sha1(root, tmp_path), [], root),
        (Signed("leaf", by=weak_root, sans=LOCALHOST), [], weak_root),
        (Signed("leaf", by=middle, sans=LOCALHOST), [middle], root),
    ):
        assert await ask(leaf.server(tmp_path, *chain), bundle.pem) != ""
    assert await ask(Signed("leaf", by=root, sans=LOCALHOST).server(tmp_path), root.pem) == ""


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_endpoint_that_demands_a_certificate_of_ours_is_broken_at_once(
    ca: trustme.CA, version: ssl.TLSVersion
) -> None:
    """With TLS 1.3 it says so only after we think that the handshake is over; the question is not put twice."""
    tls = issued(ca, "localhost")
    tls.minimum_version = tls.maximum_version = version
    tls.verify_mode = ssl.CERT_REQUIRED
    ca.configure_trust(tls)
    assert await ask(tls, ca.cert_pem.bytes()) != ""


async def test_endpoint_that_would_like_a_certificate_of_ours_is_asked(ca: trustme.CA) -> None:
    tls = issued(ca, "localhost")
    tls.verify_mode = ssl.CERT_OPTIONAL
    ca.configure_trust(tls)
    assert await ask(tls, ca.cert_pem.bytes()) == ""


async def test_certificate_that_is_renewed_under_way_is_no_failure(ca: trustme.CA) -> None:
    """Old connections go on, new ones see the new certificate; one that has become wrong fails new ones only."""
    tls = issued(ca, "localhost")
    busy = asyncio.Event()

    async def script(peer: Peer) -> None:
        while (body := await peer.question()) is not None:
            if body == b"wait":
                await busy.wait()
            peer.send(answer())

    async with Endpoint(script, tls) as endpoint:
        url = f"https://localhost:{endpoint.port}/"
        async with a_transport(url, ca) as transport:
            await transport.post(b"{}")
            ca.issue_cert("localhost").configure_cert(tls)
            await asyncio.gather(*[transport.post(b"{}") for _ in range(4)])
            trustme.CA().issue_cert("localhost").configure_cert(tls)
            waits = [asyncio.create_task(transport.post(b"wait")) for _ in range(len(endpoint.peers))]
            await asyncio.sleep(0)
            assert "certificate is not accepted" in (await broken(transport)).cause
            busy.set()
            assert {(await wait).status for wait in waits} == {200}


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
async def test_tls_1_0_and_1_1_are_refused_and_1_2_and_1_3_are_not(ca: trustme.CA) -> None:
    for version, accepted in [
        (ssl.TLSVersion.TLSv1, False),
        (ssl.TLSVersion.TLSv1_1, False),
        (ssl.TLSVersion.TLSv1_2, True),
        (ssl.TLSVersion.TLSv1_3, True),
    ]:
        tls = issued(ca, "localhost")
        tls.set_ciphers("DEFAULT:@SECLEVEL=0")
        tls.minimum_version = tls.maximum_version = version
        assert (await ask(tls, ca.cert_pem.bytes()) == "") is accepted, version


async def test_endpoint_without_tls_is_refused(ca: trustme.CA) -> None:
    async with Endpoint(answering(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")) as endpoint:
        url = parse_webhook_url(endpoint.url.replace("http:", "https:"))
        async with Transport(url, timeout=0.5, tls=client_context(ca.cert_pem.bytes())) as transport:
            with pytest.raises(HookBroken):
                await transport.post(b"{}")
        assert endpoint.questions == []


async def test_what_answers_in_plain_text_is_said_to(ca: trustme.CA) -> None:
    """A server of HTTP on that port, most often; OpenSSL calls it WRONG_VERSION_NUMBER."""

    async def script(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await peer.question()

    async with Endpoint(script) as endpoint:
        url = parse_webhook_url(endpoint.url.replace("http:", "https:"))
        async with Transport(url, timeout=LONG, tls=client_context(ca.cert_pem.bytes())) as transport:
            assert "does not speak TLS" in (await broken(transport)).cause


async def test_only_http_1_1_is_offered(ca: trustme.CA) -> None:
    tls = issued(ca, "localhost")
    tls.set_alpn_protocols(["h2", "http/1.1"])
    assert await ask(tls, ca.cert_pem.bytes()) == ""


@pytest.mark.parametrize(
    "bundle",
    [b"", b"\n", b"hello", b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", b"\x30\x82\x01\x00"],
)
def test_bundle_without_certificates_is_an_error_in_one_line(bundle: bytes) -> None:
    with pytest.raises(TrustError) as caught:
        client_context(bundle)
    assert "\n" not in str(caught.value)


def test_text_between_the_certificates_is_ignored(ca: trustme.CA) -> None:
    bundle = (
        "# Gesch\u00e4ftsstelle\n".encode() + ca.cert_pem.bytes() + "\u00e4".encode("latin-1") + ca.cert_pem.bytes()
    )
    assert client_context(bundle).cert_store_stats()["x509_ca"] == 1
