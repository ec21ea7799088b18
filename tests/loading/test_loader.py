"""Loading one file: what it holds, what is wrong with it, and that nothing of it stays behind. Real processes."""

import asyncio
import contextlib
import json
import os
import py_compile
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from dexaflow.base.errors import DagError
from dexaflow.loading.loader import Loaded, NotLoadedError, load_file

HEAD = "from dexaflow import DAG, bash, task\n"
HANG_SECONDS = 2.0  # the limit for files that are meant to hit it


async def load(
    root: Path, body: str | bytes, *, file: str = "etl.py", timeout: float = 30.0, mib: int = 2048
) -> object:
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body.encode() if isinstance(body, str) else body)
    return await load_file(root, file, timeout=timeout, memory_bytes=mib << 20)


async def loaded(root: Path, body: str, **options: str) -> Loaded:
    result = await load(root, body, **options)  # type: ignore[arg-type]
    assert isinstance(result, Loaded), result
    return result


async def refused(root: Path, body: str | bytes, *, timeout: float = 30.0, mib: int = 2048) -> DagError:
    result = await load(root, body, timeout=timeout, mib=mib)
    assert isinstance(result, DagError)
    assert result.file == "etl.py"
    assert len(result.cause) <= 500
    assert result.cause.isprintable()
    return result


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another process does; the test's own limit is the limit."""
    while not condition():
        await asyncio.sleep(0.01)


def processes_with(mark: str) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and mark.encode() in Path(f"/proc/{name}/cmdline").read_bytes():
                found.append(int(name))
    return found


async def test_a_file_gives_its_dags_with_their_lines(tmp_path: Path) -> None:
    body = HEAD + "with DAG('one'):\n    bash('a', 'true') >> bash('b', 'true')\nDAG('two')\n"

    result = await loaded(tmp_path, body)

    assert [(dag.dag_id, dag.line) for dag in result.dags] == [("one", 2), ("two", 4)]
    assert [(t.task_id, t.upstream, t.line) for t in result.dags[0].tasks] == [("a", (), 3), ("b", ("a",), 3)]
    assert (result.file, result.files, result.errors) == ("etl.py", ("etl.py",), ())


async def test_a_file_without_a_dag_is_no_error(tmp_path: Path) -> None:
    assert (await loaded(tmp_path, "import dexaflow\n")).dags == ()


async def test_what_a_file_prints_is_captured_and_harms_nothing(tmp_path: Path) -> None:
    """A file that prints garbage (issue: bad DAG files) cannot spoil the result, which goes another way."""
    body = HEAD + "import sys\nprint('{\"dags\": []}')\nsys.stderr.buffer.write(b'\\xff\\x00')\nDAG('etl')\n"

    result = await loaded(tmp_path, body)

    assert [dag.dag_id for dag in result.dags] == ["etl"]
    assert sorted(result.output) == sorted('{"dags": []}\n\ufffd\0')


async def test_the_files_that_a_dag_needs_are_found(tmp_path: Path) -> None:
    """Imported at once, imported inside a function, opened for reading; not what is only written or lies elsewhere."""
    for file, body in {
        "helper.py": "from pkg import first\nQUERY = open(__file__.replace('helper.py', 'query.sql')).read()\n",
        "query.sql": "select 1",
        "pkg/__init__.py": "",
        "pkg/first.py": "def f():\n    from . import second\n",
        "pkg/second.py": "from ..helper import QUERY\n",
        "lazy.py": "import lazier.deep as x\n",
        "lazier/deep.py": "this is no Python",
        "unrelated.py": "",
        ".hidden": "secret",
        "space/inside.py": "",
    }.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(body)
    body = HEAD + (
        "import helper, json\nimport space.inside\nroot = __file__.rpartition('/')[0]\nopen(root + '/.hidden').read()\n"
        "open(root + '/written.txt', 'w').write('x')\n"
        "@task\ndef t():\n    import lazy\n"
    )

    result = await loaded(tmp_path, body)

    assert result.files == (
        "etl.py", "helper.py", "lazier/deep.py", "lazy.py", "pkg/__init__.py", "pkg/first.py", "pkg/second.py",
        "query.sql", "space/inside.py",
    )  # fmt: skip
    assert result.digests.keys() == set(result.files)
    assert not os.path.exists(tmp_path / "__pycache__")  # noqa: ASYNC240


async def test_sources_count_and_never_a_stale_bytecode(tmp_path: Path) -> None:
    """A ``.pyc`` is trusted by second and size, so an edit within the second would run the old module."""
    helper = tmp_path / "helper.py"
    helper.write_text("NAME = 'old'\n")
    py_compile.compile(str(helper))
    stamp = helper.stat()
    helper.write_text("NAME = 'new'\n")
    os.utime(helper, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))

    result = await loaded(tmp_path, HEAD + "from helper import NAME\nDAG(NAME)\n")

    assert result.dags[0].dag_id == "new"


async def test_the_process_gets_an_environment_made_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the server's, which may hold secrets (R10.4); nor its input, nor its descriptors."""
    monkeypatch.setenv("SECRET_MARK", "s3cret")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    body = HEAD + (
        "import json, os, sys\n"
        "links = [f'/proc/self/fd/{n}' for n in range(256) if os.path.lexists(f'/proc/self/fd/{n}')]\n"
        "own_session = os.getsid(0) == os.getppid()\n"
        "print(json.dumps([sorted(os.environ), sys.stdin.read(), own_session, [os.readlink(l) for l in links]]))\n"
    )
    read, write = os.pipe()
    os.set_inheritable(read, True)
    try:
        names, stdin, own_session, descriptors = json.loads((await loaded(tmp_path, body)).output)
    finally:
        os.close(read)
        os.close(write)

    assert set(names) <= {"PATH", "HOME", "LANG", "TMPDIR", "LC_CTYPE"}
    assert (stdin, own_session) == ("", True)
    assert not [name for name in descriptors if name.startswith(("pipe:", "socket:"))], descriptors


@pytest.mark.parametrize(
    ("body", "line", "said"),
    [
        ("x = 1\nraise ValueError('boom')\n", 2, "ValueError: boom"),
        ("def f():\n    1 / 0\n\nf()\n", 2, "ZeroDivisionError: division by zero"),
        ("raise Exception('<b>\\x1b[31m\\nline two\\u202e')", 1, "Exception: <b>\\u001b[31m line two\\u202e"),
        ("raise Exception('x' * 10**7)", 1, "xxx..."),
        ("class E(Exception):\n    def __str__(self): raise SystemExit\nraise E", 3, "its message cannot be shown"),
        ("x = (\n", 1, "SyntaxError: '(' was never closed"),
        ("\n\ndef f(:\n", 3, "SyntaxError: invalid syntax"),
        (b"x = 1\n# \0\n", 2, "null bytes"),
        (b"# one\nx = '\xff'\n", 2, "'utf-8' codec can't decode byte 0xff"),
        ("import sys\nsys.exit()\n", 2, "calls sys.exit() while it is loaded"),
        ("raise KeyboardInterrupt\n", 1, "KeyboardInterrupt"),
        ("import os\n\nos._exit(0)\n", 3, "calls os._exit(0) while it is loaded"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n", 0, "was killed by SIGTERM"),
        ("import ctypes\nctypes.string_at(0)\n", 2, "was killed by SIGSEGV"),
        ("import os\nos.closerange(3, 999)\n", 0, "closes file descriptors that are not its own"),
        ("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nwhile True: pass\n", 0, "was killed while it was"),
        ("def f(): f()\nf()\n", 1, "RecursionError"),
        ("import nothing_like_it\n", 1, "ModuleNotFoundError: No module named 'nothing_like_it'"),
        ("while True:\n    print('x' * 10**6)\n", 2, "hits a limit of loading"),
        (HEAD + "bash('a', 'true')\n", 2, "bash('a') makes a task and needs a DAG around it"),
        (HEAD + "DAG('etl',\n    retries=2)\n", 2, "DAG 'etl': unknown option 'retries'"),
        (
            HEAD + "with DAG('etl'):\n    a = bash('a', 'true')\n    b = bash('b', 'true')\n    a >> b >> a\n",
            2,
            "cycle",
        ),
    ],
)
async def test_a_bad_file_is_told_with_its_line_and_cause(
    tmp_path: Path, body: str | bytes, line: int, said: str
) -> None:
    """Raises, ends itself, crashes, is no Python (issue: bad DAG files get file, line and cause)."""
    error = await refused(tmp_path, body)

    assert said in error.cause
    assert error.line == line


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("import time\ntime.sleep(999)\n", 2),
        ("\nwhile True: pass\n", 2),
        ("import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(999)\n", 3),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\n", 0),
    ],
)
async def test_a_file_that_hangs_is_ended_and_told_where(tmp_path: Path, body: str, line: int) -> None:
    error = await refused(tmp_path, body, timeout=HANG_SECONDS)

    assert error.cause == "is not loaded after 2 s; move slow work into a task"
    assert error.line == line


async def test_a_file_that_eats_memory_is_stopped(tmp_path: Path) -> None:
    error = await refused(tmp_path, "x = []\nwhile True:\n    x.append(bytearray(10**7))\n", mib=512)

    assert (error.line, error.cause.partition(":")[0]) == (3, "MemoryError")
    assert "512 MiB of memory" in error.cause


async def test_an_error_in_a_local_module_names_its_place(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "helper.py").write_text("\n\n1 / 0\n")
    (tmp_path / "broken.py").write_text("\ndef (\n")

    error = await refused(tmp_path, "import sys\nimport lib.helper\n")
    assert (error.line, error.cause) == (2, "ZeroDivisionError: division by zero (lib/helper.py, line 3)")
    error = await refused(tmp_path, "import broken\n")
    assert (error.line, error.cause) == (1, "SyntaxError: invalid syntax (broken.py, line 2)")


async def test_a_dag_with_a_schedule_that_never_comes_leaves_the_others_of_its_file(tmp_path: Path) -> None:
    body = HEAD + "DAG('never', schedule='0 0 31 2 *')\nDAG('odd', schedule='61 * * * *')\nDAG('good')\nDAG('good')\n"

    result = await loaded(tmp_path, body)

    assert [dag.dag_id for dag in result.dags] == ["good"]
    assert [str(error) for error in result.errors] == [
        "etl.py:2: DAG 'never': schedule '0 0 31 2 *' never comes; name a day that one of its months has",
        "etl.py:3: DAG 'odd': schedule '61 * * * *': there is no minute '61';"
        " write 0 to 59, or *; lists (,), ranges (-) and steps (/) of them",
        "etl.py:5: DAG 'good' is in this file already, in line 4; rename one",
    ]


async def test_every_preset_is_a_schedule(tmp_path: Path) -> None:
    body = HEAD + (
        "from dexaflow.model.dag_rules import PRESETS\n"
        "for p in PRESETS: DAG(p[1:], schedule=p, timezone='Europe/Berlin')\n"
    )

    result = await loaded(tmp_path, body)

    assert (len(result.dags), result.errors) == (8, ())


async def test_a_forked_copy_of_the_file_adds_nothing(tmp_path: Path) -> None:
    result = await loaded(tmp_path, HEAD + "import os\nos.fork()\nos.fork()\nDAG('etl')\n")

    assert [dag.dag_id for dag in result.dags] == ["etl"]


async def test_threads_and_exit_handlers_do_not_hold_up_the_end(tmp_path: Path) -> None:
    body = HEAD + (
        "import atexit, threading, time\natexit.register(time.sleep, 999)\n"
        "threading.Thread(target=time.sleep, args=(999,)).start()\nDAG('etl')\n"
    )
    assert len((await loaded(tmp_path, body)).dags) == 1


DAEMON = """
import os, subprocess, sys
subprocess.Popen(["sleep", "MARK"])
subprocess.Popen(["setsid", "sleep", "MARK"])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "MARK"])
    os._exit(0)
"""


@pytest.mark.parametrize(("end", "timeout"), [("", 30.0), ("1 / 0", 30.0), ("while True: pass", HANG_SECONDS)])
async def test_nothing_that_a_file_starts_outlives_its_loading(tmp_path: Path, end: str, timeout: float) -> None:
    """Not even what has made a session of its own."""
    mark = f"98{os.getpid()}.{len(end)}"

    await load(tmp_path, DAEMON.replace("MARK", mark) + end, timeout=timeout)

    assert processes_with(mark) == []


async def test_a_load_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    began = tmp_path / "began"
    body = f"import time\nopen({str(began)!r}, 'w').close()\ntime.sleep(999)\n"
    loading = asyncio.create_task(load(tmp_path, body))
    await until(began.exists)

    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading

    assert processes_with(str(tmp_path)) == []


async def test_a_load_whose_server_is_gone_ends_by_itself(tmp_path: Path) -> None:
    """kill -9 of the server leaves no loader behind (R10.3)."""
    began = tmp_path / "began"
    (tmp_path / "etl.py").write_text(f"import time\nopen({str(began)!r}, 'w').close()\ntime.sleep(999)\n")
    program = (
        "import asyncio, pathlib, sys; from dexaflow.loading.loader import load_file; "
        "asyncio.run(load_file(pathlib.Path(sys.argv[1]), 'etl.py', timeout=999))"
    )
    server = await asyncio.create_subprocess_exec(sys.executable, "-c", program, str(tmp_path))
    await until(began.exists)

    server.kill()
    await server.wait()

    await until(lambda: processes_with(str(tmp_path)) == [])


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b'{"dags": [], "files": {}}',
        b'{"dags": [{"dag_id": "../x", "tasks": []}], "files": {"etl.py": "0"}}',
        b'{"dags": [], "files": {"etl.py": "' + b"0" * 64 + b'", "../../etc/passwd": "' + b"0" * 64 + b'"}}',
        b'{"dags": [], "files": {"etl.py": "' + b"0" * 64 + b'", "/etc/passwd": "' + b"0" * 64 + b'"}}',
        b'{"error": {"line": "1", "cause": "x"}}',
        b'{"error": {"line": 1, "cause": 2}}',
        b'{"error": {"line": 1, "cause": "x"}, "dags": []}',
        b"1" * 5000,
        b"x" * 9_000_000,
    ],
)
async def test_what_the_process_reports_is_not_believed(tmp_path: Path, document: bytes) -> None:
    """The process is the file's own: it may write what it likes where our code would write the result."""
    (tmp_path / "document").write_bytes(document)
    body = (
        "import os, signal, sys\n"
        "fds = [int(n) for n in os.listdir('/proc/self/fd')]\n"
        "document = open(__file__.replace('etl.py', 'document'), 'rb').read()\n"
        "for fd in fds:\n"
        "    if fd > 2:\n"
        "        try: os.ftruncate(fd, 0); os.write(fd, document)\n"
        "        except OSError: pass\n"
        "from posix import _exit\n"
        "_exit(0)\n"
    )

    error = await refused(tmp_path, body)

    assert error.cause


async def test_a_file_works_in_a_folder_that_is_gone_afterwards(tmp_path: Path) -> None:
    """The working directory is not the DAG folder, as when a task runs; what is left in it does not stay."""
    body = HEAD + "import os, tempfile\nopen('x', 'w')\ntempfile.mkdtemp()\nprint(os.getcwd(), os.environ['TMPDIR'])\n"

    cwd, temporary = (await loaded(tmp_path, body)).output.split()

    assert cwd == temporary
    assert not Path(cwd).exists()  # noqa: ASYNC240
    assert os.listdir(tmp_path) == ["etl.py"]


async def test_a_text_in_an_error_is_cleaned_here_too(tmp_path: Path) -> None:
    document = json.dumps({"error": {"line": 7, "cause": "a\nb\x1b[2J" + "x" * 9999}}).encode()

    (tmp_path / "document").write_bytes(document)
    body = (
        "import os\nfrom posix import _exit\ndocument = open(__file__.replace('etl.py', 'document'), 'rb').read()\n"
        "for fd in map(int, os.listdir('/proc/self/fd')):\n"
        "    try: fd > 2 and os.write(fd, document)\n"
        "    except OSError: pass\n"
        "_exit(0)\n"
    )
    error = await refused(tmp_path, body)

    assert error.line == 7
    assert error.cause.startswith("a b\\u001b[2Jxxx")


async def test_a_file_or_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "nowhere"):
        error = await load_file(root, "etl.py", timeout=30)
        assert isinstance(error, DagError)
        assert "No such file or directory" in error.cause


async def test_the_loop_goes_on_while_a_file_hangs(tmp_path: Path) -> None:
    """A good file is loaded meanwhile (issue: everything else keeps running)."""
    (tmp_path / "good.py").write_text(HEAD + "DAG('good')\n")
    hanging = asyncio.create_task(load(tmp_path, "while True: pass\n", timeout=999))

    good = await load_file(tmp_path, "good.py", timeout=30)

    assert isinstance(good, Loaded)
    assert not hanging.done()
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging


async def test_a_file_may_have_the_name_of_a_module_it_uses(tmp_path: Path) -> None:
    result = await load(tmp_path, HEAD + "import json\nDAG(json.dumps('a').strip('\"'))\n", file="team one/json.py")

    assert isinstance(result, Loaded)
    assert result.files == ("team one/json.py",)


async def test_a_machine_without_room_for_a_load_is_no_fault_of_the_file_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "etl.py").write_text("from dexaflow import DAG\nDAG('etl')\n")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))  # as with a /tmp that is full or read-only
    told = await load_file(tmp_path, "etl.py")
    assert isinstance(told, NotLoadedError)
    assert told.cause == "cannot be loaded: No such file or directory"


async def test_a_full_temporary_folder_is_no_fault_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The load cannot say how it ended, so it looks as if it had been killed."""
    (tmp_path / "etl.py").write_text("from dexaflow import DAG\nDAG('etl')\n")
    monkeypatch.setattr(tempfile, "TemporaryFile", partial(open, "/dev/full", "r+b", buffering=0))
    told = await load_file(tmp_path, "etl.py")
    assert isinstance(told, NotLoadedError)
    assert told.cause == "cannot be loaded: No space left on device"
