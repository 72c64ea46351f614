"""A launched server is ready when the block begins and gone when it ends, whatever happened."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from harness.targets.launch import free_port, launched
from harness.targets.target import TargetUnusable

SERVER = """
import http.server, os, subprocess, sys
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Ready)
if "--child" in sys.argv:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print("child", child.pid, flush=True)
if "--stubborn" in sys.argv:
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(f"serving on http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
"""


def command(*flags: str, port: int = 0) -> list[str]:
    return [sys.executable, "-c", SERVER, str(port), *flags]


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state != "Z"


def assert_gone(pid: int) -> None:
    deadline_s = time.monotonic() + 10
    while running(pid):
        assert time.monotonic() < deadline_s, f"process {pid} is still running"


def test_the_printed_address_is_found_and_answers(tmp_path: Path) -> None:
    """The server chose its port; the block knows it; afterwards nothing listens."""
    with launched(command(), log=tmp_path / "log") as server:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        assert opener.open(server.url + "/health", timeout=5).status == 200
    assert not running(server.pid)


def test_a_given_address_is_waited_for(tmp_path: Path) -> None:
    """Servers that print no address are told their port."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with launched(command(port=port), log=tmp_path / "log", url=url) as server:
        assert server.url == url


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_it_is_stopped_when_the_block_raises(error: type[BaseException], tmp_path: Path) -> None:
    """Ctrl-C in the middle leaves no server, and none of the processes it started."""
    with pytest.raises(error), launched(command("--child"), log=tmp_path / "log") as server:  # noqa: PT012
        child = int(server.log.read_text().split()[1])
        assert running(child)
        raise error
    assert not running(server.pid)
    assert_gone(child)


def test_a_server_that_ignores_the_request_to_stop_is_killed(tmp_path: Path) -> None:
    """SIGKILL follows SIGTERM."""
    log = tmp_path / "log"
    with launched(command("--stubborn"), log=log, stop_timeout_s=0.3) as server:
        pass
    assert not running(server.pid)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["/nonexistent/server"], "cannot start /nonexistent/server: No such file"),
        ([sys.executable, "-c", "raise SystemExit('no such model')"], "status 1.*no such model"),
        ([sys.executable, "-c", "import time; time.sleep(60)"], "printed no address in time"),
    ],
)
def test_a_server_that_never_comes_up_is_one_sentence(
    words: list[str], complaint: str, tmp_path: Path
) -> None:
    """The error says what the server did, with the end of its output."""
    with (
        pytest.raises(TargetUnusable, match=complaint),
        launched(words, log=tmp_path / "log", ready_timeout_s=1),
    ):
        pytest.fail("the block must not begin")


NESTED = """
import sys
print("INFO loading", file=sys.stderr)
print("(Worker pid=7) ERROR ValueError: No common block size for 16", file=sys.stderr)
for number in range(20):
    print(f"  File frame {number}", file=sys.stderr)
raise RuntimeError("Engine core initialization failed. See root cause above.")
"""


def test_the_first_error_of_a_long_log_is_told_too(tmp_path: Path) -> None:
    """vLLM wraps what went wrong in three tracebacks; only the first error is the cause."""
    words = [sys.executable, "-c", NESTED]
    with (
        pytest.raises(TargetUnusable, match=r"No common block size for 16.*initialization failed"),
        launched(words, log=tmp_path / "log", ready_timeout_s=10),
    ):
        pytest.fail("the block must not begin")


OWNER = """
import sys
from pathlib import Path
from harness.targets.launch import launched
with launched(sys.argv[2:], log=Path(sys.argv[1])) as server:
    print(server.pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("fatal", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_harness_that_was_killed(fatal: signal.Signals, tmp_path: Path) -> None:
    """No `finally` runs on SIGKILL; the leash ends the server and the server's child."""
    log = tmp_path / "log"
    words = [sys.executable, "-c", OWNER, str(log), *command("--child")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        leash = int(owner.stdout.readline())
        child = int(log.read_text().split()[1])
        owner.send_signal(fatal)
    assert_gone(leash)
    assert_gone(child)


def test_a_taken_port_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """An old server on the port would answer in the new one's place."""
    with socket.create_server(("127.0.0.1", 0)) as old:
        port = old.getsockname()[1]
        with (
            pytest.raises(TargetUnusable, match=f"port {port} .* already in use"),
            launched(command(port=port), log=tmp_path / "log", url=f"http://127.0.0.1:{port}"),
        ):
            pytest.fail("the block must not begin")


def test_an_answer_from_somebody_elses_process_is_not_believed(tmp_path: Path) -> None:
    """The printed address must belong to the started process."""
    with launched(command(), log=tmp_path / "first") as other:
        impostor = f"import time; print('on {other.url} ', flush=True); time.sleep(60)"
        with (
            pytest.raises(TargetUnusable, match="another process answers"),
            launched([sys.executable, "-c", impostor], log=tmp_path / "second"),
        ):
            pytest.fail("the block must not begin")


def test_the_environment_is_added_to_our_own(tmp_path: Path) -> None:
    """Recipes set variables such as cache sizes."""
    script = "import os, sys; sys.exit(os.environ['ROOM'] + os.environ['PATH'][:1])"
    with (
        pytest.raises(TargetUnusable, match="status 1 at start: 7/"),
        launched([sys.executable, "-c", script], log=tmp_path / "log", environment={"ROOM": "7"}),
    ):
        pytest.fail("the block must not begin")
