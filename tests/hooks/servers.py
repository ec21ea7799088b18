"""Endpoints that we did not write, each set up to do the same things: `SERVERS`.

`RELOADING` take up their configuration anew by a signal, questions or not. `HTTP2_ONLY` know no HTTP/1.1.

Paths: `/admit` answers 200 with `ANSWER`; `/big` answers 200 with more than 64 KiB; `/moved` redirects to `/admit`;
`/missing` is not found; `/silent` never answers. Idle connections are closed after `IDLE_SECONDS`.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

__all__ = [
    "ANSWER",
    "HTTP2_ONLY",
    "IDLE_SECONDS",
    "RELOADING",
    "RELOAD_SIGNALS",
    "SERVERS",
    "Server",
    "program",
    "running",
]

ANSWER = b'{"ok":true}'
IDLE_SECONDS = 1
START_SECONDS = 20.0  # a loaded machine

_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/usr/local/go/bin"])


@dataclass(frozen=True)
class Setup:
    """Where a server finds its things. `certificate` holds key and chain; a connection to `silent_port` hangs.

    `plain_port` is for what stands behind a server that only does the TLS.
    """

    folder: Path
    certificate: Path
    port: int
    silent_port: int
    plain_port: int


Command = list[str]


@dataclass
class Server:
    """A server that runs."""

    name: str
    ports: list[int]  # the first is the one to ask
    _commands: list[Command]
    _log: Path
    _processes: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    def url(self, path: str) -> str:
        """Where it answers."""
        return f"https://localhost:{self.ports[0]}{path}"

    def start(self) -> None:
        """Start it and wait until it listens."""
        with open(self._log, "ab") as log:
            self._processes = [subprocess.Popen(command, stdout=log, stderr=log) for command in self._commands]
        give_up = time.monotonic() + START_SECONDS
        for port in self.ports:
            while not _listens(port):
                if time.monotonic() > give_up or any(process.poll() is not None for process in self._processes):
                    raise AssertionError(f"{self.name} did not start: {self._log.read_text()}")
                time.sleep(0.02)

    def signal(self, number: int) -> None:
        """Send a signal to all its processes."""
        for process in self._processes:
            process.send_signal(number)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Let it do nothing for the length of a block, while its kernel goes on taking connections and bytes."""
        self.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)

    def end(self) -> None:
        """Stop it in good order, its workers too."""
        self.signal(signal.SIGTERM)
        for process in self._processes:
            process.wait(START_SECONDS)

    def stop(self) -> None:
        """Kill it, and with it all its connections."""
        self.signal(signal.SIGKILL)
        for process in self._processes:
            process.wait()
        self._processes = []


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _nginx(setup: Setup) -> list[Command]:
    temporary = "\n".join(
        f"{name}_temp_path {setup.folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (setup.folder / "big").write_bytes(b"x" * 65_537)
    config = setup.folder / "nginx.conf"
    config.write_text(
        f"""
        daemon off; master_process off; pid {setup.folder}/pid; error_log stderr;
        events {{ worker_connections 256; }}
        http {{
            access_log off; {temporary}
            default_type application/json;
            gzip on; gzip_min_length 1; gzip_types *; gzip_proxied any;
            keepalive_timeout {IDLE_SECONDS}; keepalive_requests 50; client_max_body_size 8m;
            server {{
                listen 127.0.0.1:{setup.port} ssl;
                ssl_certificate {setup.certificate}; ssl_certificate_key {setup.certificate};
                location = /admit {{ return 200 '{ANSWER.decode()}'; }}
                location = /big {{ root {setup.folder}; error_page 405 =200 $uri; }}
                location = /moved {{ return 307 /admit; }}
                location = /silent {{ proxy_pass http://127.0.0.1:{setup.silent_port}; }}
                location / {{ return 404; }}
            }}
        }}
        """
    )
    return [[program("nginx"), "-p", str(setup.folder), "-c", str(config)]]


def _haproxy(setup: Setup) -> list[Command]:
    big = setup.folder / "big"
    big.write_bytes(b"x" * 70_000)
    config = setup.folder / "haproxy.cfg"
    config.write_text(
        textwrap.dedent(
            f"""\
            global
                tune.bufsize 131072
            defaults
                mode http
                timeout client 30s
                timeout server 30s
                timeout connect 30s
                timeout http-keep-alive {IDLE_SECONDS}s
            frontend endpoint
                bind 127.0.0.1:{setup.port} ssl crt {setup.certificate}
                http-request return status 200 content-type text/plain string {_escaped(ANSWER)} if {{ path /admit }}
                http-request return status 200 content-type text/plain file {big} if {{ path /big }}
                http-request redirect location /admit code 307 if {{ path /moved }}
                http-request return status 404 unless {{ path /silent }}
                default_backend silent
            backend silent
                server silent 127.0.0.1:{setup.silent_port}
            """
        )
    )
    return [[program("haproxy"), "-db", "-f", str(config)]]


def _escaped(text: bytes) -> str:
    return text.decode().replace('"', '\\"')


def _node(setup: Setup) -> list[Command]:
    script = setup.folder / "endpoint.js"
    script.write_text(
        f"""
        const pem = require('fs').readFileSync('{setup.certificate}');
        const server = require('https').createServer({{key: pem, cert: pem}}, (request, response) => {{
            request.resume();
            request.on('end', () => {{
                if (request.url === '/admit') response.end('{ANSWER.decode()}');
                else if (request.url === '/big') response.end('x'.repeat(65537));
                else if (request.url === '/moved') response.writeHead(307, {{location: '/admit'}}).end();
                else if (request.url !== '/silent') response.writeHead(404).end();
            }});
        }});
        server.keepAliveTimeout = {IDLE_SECONDS * 1000};
        server.listen({setup.port}, '127.0.0.1');
        """
    )
    return [[program("node"), str(script)]]


def _go(setup: Setup) -> list[Command]:
    source = setup.folder / "endpoint.go"
    source.write_text(
        f"""
        package main
        import ("io"; "net/http"; "strings"; "time")
        func main() {{
            handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {{
                io.Copy(io.Discard, r.Body)
                switch r.URL.Path {{
                case "/admit": io.WriteString(w, `{ANSWER.decode()}`)
                case "/big": io.WriteString(w, strings.Repeat("x", 65537))
                case "/moved": http.Redirect(w, r, "/admit", http.StatusTemporaryRedirect)
                case "/silent": <-r.Context().Done()
                default: http.NotFound(w, r)
                }}
            }})
            server := &http.Server{{Addr: "127.0.0.1:{setup.port}", Handler: handler}}
            server.IdleTimeout = {IDLE_SECONDS} * time.Second
            panic(server.ListenAndServeTLS("{setup.certificate}", "{setup.certificate}"))
        }}
        """
    )
    binary = setup.folder / "endpoint"
    environment = {**os.environ, "GO111MODULE": "off", "GOTOOLCHAIN": "local", "GOPROXY": "off"}
    subprocess.run([program("go"), "build", "-o", str(binary), str(source)], check=True, env=environment)
    return [[str(binary)]]


def _caddy(setup: Setup) -> list[Command]:
    def route(path: str, *handlers: dict[str, object]) -> dict[str, object]:
        return {"match": [{"path": [path]}], "handle": list(handlers), "terminal": True}

    def text(body: str) -> dict[str, object]:
        return {"handler": "static_response", "status_code": 200, "body": body}

    gzip: dict[str, object] = {"handler": "encode", "encodings": {"gzip": {}}, "minimum_length": 1}
    moved: dict[str, object] = {"handler": "static_response", "status_code": 307, "headers": {"Location": ["/admit"]}}
    silent: dict[str, object] = {"handler": "reverse_proxy", "upstreams": [{"dial": f"127.0.0.1:{setup.silent_port}"}]}
    server = {
        "listen": [f"127.0.0.1:{setup.port}"],
        "idle_timeout": f"{IDLE_SECONDS}s",
        "automatic_https": {"disable": True},
        "tls_connection_policies": [{"default_sni": "localhost"}],  # an address is asked for without a name
        "routes": [
            route("/admit", gzip, text(ANSWER.decode())),
            route("/big", gzip, text("x" * 65_537)),
            route("/moved", moved),
            route("/silent", silent),
            {"handle": [{"handler": "static_response", "status_code": 404}]},
        ],
    }
    certificate = {"certificate": str(setup.certificate), "key": str(setup.certificate)}
    config = setup.folder / "caddy.json"
    config.write_text(
        json.dumps(
            {
                "admin": {"disabled": True, "config": {"persist": False}},
                "storage": {"module": "file_system", "root": str(setup.folder)},
                "apps": {
                    "tls": {"certificates": {"load_files": [certificate]}},
                    "http": {"servers": {"endpoint": server}},
                },
            }
        )
    )
    return [["env", f"HOME={setup.folder}", program("caddy"), "run", "--config", str(config)]]


# Python's own `http.server`, with TLS or behind something that does it. Version 1.0 gives no length: its answer ends
# with its connection.
_HTTP_SERVER = f"""
import contextlib, http.server, ssl, sys, threading

class Handler(http.server.BaseHTTPRequestHandler):
    timeout = {IDLE_SECONDS}
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/silent":
            threading.Event().wait()
        status, body = {{"/admit": (200, {ANSWER!r}), "/big": (200, b"x" * 65_537), "/moved": (307, b"")}}.get(
            self.path, (404, b""))
        self.send_response(status)
        if status == 307:
            self.send_header("Location", "/admit")
        if self.protocol_version == "HTTP/1.1":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def finish(self):
        super().finish()
        with contextlib.suppress(AttributeError, OSError):  # plain; gone
            self.connection.unwrap()

class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128

port, Handler.protocol_version, certificate = sys.argv[1:]
server = Server(("127.0.0.1", int(port)), Handler)
if certificate:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
server.serve_forever()
"""


def _http_server(port: int, version: str, certificate: str) -> Command:
    return [sys.executable, "-c", _HTTP_SERVER, str(port), version, certificate]


def _http_1_0(setup: Setup) -> list[Command]:
    return [_http_server(setup.port, "HTTP/1.0", str(setup.certificate))]


def _stunnel(setup: Setup) -> list[Command]:
    config = setup.folder / "stunnel.conf"
    config.write_text(
        textwrap.dedent(
            f"""\
            foreground = yes
            pid =
            [endpoint]
            accept = 127.0.0.1:{setup.port}
            connect = 127.0.0.1:{setup.plain_port}
            cert = {setup.certificate}
            """
        )
    )
    return [_http_server(setup.plain_port, "HTTP/1.1", ""), [program("stunnel"), str(config)]]


def _haproxy_http2(setup: Setup) -> list[Command]:
    """Speaks HTTP/2 whatever was agreed on."""
    config = setup.folder / "haproxy.cfg"
    config.write_text(
        textwrap.dedent(
            f"""\
            defaults
                mode http
                timeout client 30s
                timeout server 30s
                timeout connect 30s
            frontend endpoint
                bind 127.0.0.1:{setup.port} ssl crt {setup.certificate} proto h2
                http-request return status 200 content-type text/plain string {_escaped(ANSWER)}
            """
        )
    )
    return [[program("haproxy"), "-db", "-f", str(config)]]


def _node_http2(setup: Setup) -> list[Command]:
    script = setup.folder / "endpoint.js"
    script.write_text(
        f"""
        const pem = require('fs').readFileSync('{setup.certificate}');
        require('http2').createSecureServer({{key: pem, cert: pem}}, (request, response) => {{
            response.end('{ANSWER.decode()}');
        }}).listen({setup.port}, '127.0.0.1');
        """
    )
    return [[program("node"), str(script)]]


def _nginx_reloading(setup: Setup) -> list[Command]:
    config = Path(_nginx(setup)[0][-1])
    config.write_text(config.read_text().replace("master_process off;", "user root;"))
    return [[program("nginx"), "-p", str(setup.folder), "-c", str(config)]]


def _haproxy_reloading(setup: Setup) -> list[Command]:
    config = Path(_haproxy(setup)[0][-1])
    handing_over = f"global\n    stats socket {setup.folder}/stats mode 600 expose-fd listeners\n"
    config.write_text(config.read_text().replace("global\n", handing_over, 1))
    return [[program("haproxy"), "-W", "-db", "-f", str(config)]]


Maker = Callable[[Setup], list[Command]]
SERVERS: dict[str, Maker] = {
    "nginx": _nginx,
    "haproxy": _haproxy,
    "node": _node,
    "go": _go,
    "caddy": _caddy,
    "stunnel": _stunnel,
    "http.server 1.0": _http_1_0,
}
RELOADING: dict[str, Maker] = {"nginx": _nginx_reloading, "haproxy": _haproxy_reloading}
RELOAD_SIGNALS = {"nginx": signal.SIGHUP, "haproxy": signal.SIGUSR2}
HTTP2_ONLY: dict[str, Maker] = {"haproxy": _haproxy_http2, "node": _node_http2}


def program(name: str) -> str:
    """Return where a program is; without it, a test is skipped on a developer's machine and fails in CI."""
    found = shutil.which(name, path=_PATH)
    if found is not None:
        return found
    if os.environ.get("CI"):
        pytest.fail(f"{name} is not installed, and CI must have it")
    pytest.skip(f"{name} is not installed")


@contextlib.contextmanager
def running(name: str, folder: Path, certificate: bytes, makers: dict[str, Maker] = SERVERS) -> Iterator[Server]:
    """Run a server by its name for the length of a block; `certificate` is key and chain in PEM."""
    file = folder / "server.pem"
    file.write_bytes(certificate)
    file.chmod(0o600)
    with socket.socket() as silent, socket.socket() as free, socket.socket() as plain:
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)  # takes connections, and says nothing
        free.bind(("127.0.0.1", 0))
        plain.bind(("127.0.0.1", 0))
        ports = [sock.getsockname()[1] for sock in (free, silent, plain)]
        setup = Setup(folder, file, *ports)
        free.close()
        plain.close()
        commands = makers[name](setup)
        server = Server(name, [setup.port, setup.plain_port][: len(commands)], commands, folder / "log")
        server.start()
        try:
            yield server
        finally:
            server.stop()
