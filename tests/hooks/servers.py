"""Endpoints that we did not write: nginx, HAProxy, Node and Go, each set up to do the same things.

Paths: `/admit` answers 200 with `ANSWER`; `/big` answers 200 with more than 64 KiB; `/moved` redirects to `/admit`;
`/missing` is not found; `/silent` never answers. Idle connections are closed after `IDLE_SECONDS`.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

__all__ = ["ANSWER", "IDLE_SECONDS", "SERVERS", "Server", "running"]

ANSWER = b'{"ok":true}'
IDLE_SECONDS = 1
START_SECONDS = 20.0  # a loaded machine

_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin", "/usr/local/go/bin"])


@dataclass(frozen=True)
class Setup:
    """Where a server finds its things. `certificate` holds key and chain; a connection to `silent_port` hangs."""

    folder: Path
    certificate: Path
    port: int
    silent_port: int


@dataclass
class Server:
    """A server that runs."""

    name: str
    port: int
    _command: list[str]
    _log: Path
    _process: "subprocess.Popen[bytes] | None" = None

    def url(self, path: str) -> str:
        """Where it answers."""
        return f"https://localhost:{self.port}{path}"

    def start(self) -> None:
        """Start it and wait until it listens."""
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        give_up = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            if self._process.poll() is not None or time.monotonic() > give_up:
                raise AssertionError(f"{self.name} did not start: {self._log.read_text()}")
            time.sleep(0.02)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Let it do nothing for the length of a block, while its kernel goes on taking connections and bytes."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Stop it, and with it all its connections."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _nginx(setup: Setup) -> list[str]:
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
    return [_program("nginx"), "-p", str(setup.folder), "-c", str(config)]


def _haproxy(setup: Setup) -> list[str]:
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
    return [_program("haproxy"), "-db", "-f", str(config)]


def _escaped(text: bytes) -> str:
    return text.decode().replace('"', '\\"')


def _node(setup: Setup) -> list[str]:
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
    return [_program("node"), str(script)]


def _go(setup: Setup) -> list[str]:
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
    subprocess.run([_program("go"), "build", "-o", str(binary), str(source)], check=True, env=environment)
    return [str(binary)]


SERVERS: dict[str, Callable[[Setup], list[str]]] = {"nginx": _nginx, "haproxy": _haproxy, "node": _node, "go": _go}


def _program(name: str) -> str:
    found = shutil.which(name, path=_PATH)
    if found is not None:
        return found
    if os.environ.get("CI"):
        pytest.fail(f"{name} is not installed, and CI must have it")
    pytest.skip(f"{name} is not installed")


@contextlib.contextmanager
def running(name: str, folder: Path, certificate: bytes) -> Iterator[Server]:
    """Run a server by its name for the length of a block; `certificate` is key and chain in PEM."""
    file = folder / "server.pem"
    file.write_bytes(certificate)
    with socket.socket() as silent, socket.socket() as free:
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)  # takes connections, and says nothing
        free.bind(("127.0.0.1", 0))
        setup = Setup(folder, file, free.getsockname()[1], silent.getsockname()[1])
        free.close()
        server = Server(name, setup.port, SERVERS[name](setup), folder / "log")
        server.start()
        try:
            yield server
        finally:
            server.stop()
