"""The transport under the stock Python client. RPC_ECHO names the echo server's program (tests/unit builds it)."""
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading

import grpc
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
from waiting import wait_until  # noqa: E402

BUILD = pathlib.Path(os.environ.get("LEASEHOLD_TEST_BUILD", ROOT / "build"))
PROGRAM = os.environ.get("RPC_ECHO", str(BUILD / "tests/unit/rpc_echo"))
PATIENCE = 60


class Echo:
    def __init__(self, *addresses, **environment):
        self.process = subprocess.Popen(
            [PROGRAM, *(addresses or ("127.0.0.1:0",))], stdout=subprocess.PIPE, text=True,
            env={**os.environ, **environment},
        )
        self.port = int(self.process.stdout.readline())
        self.target = f"127.0.0.1:{self.port}"

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


@pytest.fixture(scope="module")
def echo():
    server = Echo()
    yield server
    assert server.stop() == 0


@pytest.fixture
def channel(echo):
    options = [("grpc.max_receive_message_length", 8 << 20), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(echo.target, options=options) as channel:
        yield channel


def unary(channel, name):
    return channel.unary_unary(f"/echo.Echo/{name}")


def counts(channel):
    text = unary(channel, "Counts")(b"", timeout=PATIENCE).decode()
    return {name: int(value) for name, value in (line.split("=") for line in text.splitlines())}


def error_of(call):
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value


def test_unary_calls_of_all_sizes_come_back(channel):
    for size in [0, 1, 100, 16379, 16380, 16384, 65535, 262144, 1 << 20, 3_900_000, 4 << 20]:
        message = os.urandom(size)
        assert unary(channel, "Unary")(message, timeout=PATIENCE) == message


def test_message_over_the_limit_is_refused_with_details(channel):
    error = error_of(lambda: unary(channel, "Unary")(bytes((4 << 20) + 1), timeout=PATIENCE))
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert dict(error.trailing_metadata())["grpc-status-details-bin"] == b"MESSAGE_TOO_LARGE"
    assert unary(channel, "Unary")(b"after", timeout=PATIENCE) == b"after"


def test_metadata_arrives_and_errors_keep_their_words(channel):
    call = unary(channel, "Unary")
    assert call(b"", timeout=PATIENCE, metadata=[("x-echo", "carried")]) == b"carried"
    for code in grpc.StatusCode:
        if code == grpc.StatusCode.OK:
            continue
        error = error_of(lambda: call(b"", timeout=PATIENCE, metadata=[("x-fail", str(code.value[0])), ("x-details", "D")]))
        assert error.code() == code
        assert error.details() == "100% größer\n"
        assert dict(error.trailing_metadata())["grpc-status-details-bin"] == b"D"


def test_trailers_are_small_enough_for_python(channel):
    error = error_of(lambda: unary(channel, "Unary")(
        b"", timeout=PATIENCE, metadata=[("x-fail", "5"), ("x-message", "m" * 3000), ("x-details", "d" * 8000)]))
    assert error.code() == grpc.StatusCode.NOT_FOUND
    assert error.details() == "m" * 3000


def test_unknown_method_is_unimplemented(channel):
    error = error_of(lambda: unary(channel, "Nothing")(b"", timeout=PATIENCE))
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED
    assert error.details() == "there is no method /echo.Echo/Nothing"


def test_compression_asked_for_but_not_used_works_and_used_is_refused(channel):
    call = unary(channel, "Unary")
    # Python sends what compression does not shrink with flag 0 under grpc-encoding: gzip.
    assert call(b"x", timeout=PATIENCE, compression=grpc.Compression.Gzip) == b"x"
    error = error_of(lambda: call(bytes(100_000), timeout=PATIENCE, compression=grpc.Compression.Gzip))
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED


def test_server_stream_arrives_whole_and_in_order_under_a_slow_reader(channel):
    call = channel.unary_stream("/echo.Echo/Stream")
    assert sum(len(message) for message in call(b"2000 10000", timeout=PATIENCE)) == 20_000_000
    assert list(call(b"0 0", timeout=PATIENCE)) == []
    assert list(call(b"3 0", timeout=PATIENCE)) == [b"", b"", b""]
    slow = call(b"100000 1000", timeout=PATIENCE)
    for _ in range(10):
        assert len(next(slow)) == 1000
    assert unary(channel, "Unary")(b"not held up", timeout=PATIENCE) == b"not held up"
    slow.cancel()
    error = error_of(lambda: list(call(b"rubbish", timeout=PATIENCE)))
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_bidi_echoes_each_message(channel):
    messages = [os.urandom(size) for size in (0, 5, 100_000, 1, 2_000_000, 70_000)] * 5
    assert list(channel.stream_stream("/echo.Echo/Bidi")(iter(messages), timeout=PATIENCE)) == messages


def test_bidi_answers_before_the_client_has_said_all(channel):
    go = threading.Event()

    def requests():
        yield b"first"
        assert go.wait(PATIENCE)
        yield b"second"

    replies = channel.stream_stream("/echo.Echo/Bidi")(requests(), timeout=PATIENCE)
    assert next(replies) == b"first"
    go.set()
    assert list(replies) == [b"second"]


def test_cancelled_call_leaves_the_server(channel):
    before = counts(channel)
    calls = [unary(channel, "Never").future(b"") for _ in range(50)]
    wait_until(lambda: counts(channel)["never_open"] == 50, PATIENCE)
    for call in calls:
        call.cancel()
    wait_until(lambda: counts(channel)["never_open"] == 0, PATIENCE)
    assert counts(channel)["never_canceled"] == before["never_canceled"] + 50


def test_closed_channel_leaves_the_server(echo, channel):
    options = [("grpc.use_local_subchannel_pool", 1)]
    other = grpc.insecure_channel(echo.target, options=options)
    calls = [unary(other, "Never").future(b"") for _ in range(20)]
    wait_until(lambda: counts(channel)["never_open"] == 20, PATIENCE)
    other.close()
    wait_until(lambda: counts(channel)["never_open"] == 0, PATIENCE)
    assert calls[0].cancelled() or calls[0].exception() is not None


def test_deadline_is_the_same_whoever_notices_first(channel):
    before = counts(channel)
    for i in range(100):
        error = error_of(lambda: unary(channel, "Never")(b"", timeout=0.001 * (i % 20 + 1)))
        assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    wait_until(lambda: counts(channel)["never_open"] == 0, PATIENCE)
    after = counts(channel)
    for reason in ("finished", "disconnected", "refused", "shutdown"):
        assert after["never_" + reason] == before["never_" + reason]


def test_server_ends_a_call_at_its_deadline_without_the_client(echo, channel):
    """The client is stopped (SIGSTOP), so only the server's own timer can end the call."""
    script = (
        "import grpc\n"
        f"channel = grpc.insecure_channel('{echo.target}')\n"
        "channel.unary_unary('/echo.Echo/Never')(b'', timeout=1)\n"
    )
    before = counts(channel)["never_deadline"]
    client = subprocess.Popen(["/usr/bin/python3", "-c", script], stderr=subprocess.DEVNULL)
    wait_until(lambda: counts(channel)["never_open"] == 1, PATIENCE)
    client.send_signal(signal.SIGSTOP)
    wait_until(lambda: counts(channel)["never_open"] == 0, PATIENCE)
    assert counts(channel)["never_deadline"] == before + 1
    client.kill()
    client.wait()


def test_a_thousand_calls_are_open_on_one_connection(channel):
    calls = [unary(channel, "Never").future(b"", timeout=PATIENCE) for _ in range(999)]
    wait_until(lambda: counts(channel)["never_open"] == 999, PATIENCE)
    seen = counts(channel)
    assert unary(channel, "Unary")(b"the last place", timeout=PATIENCE) == b"the last place"
    for call in calls:
        call.cancel()
    wait_until(lambda: counts(channel)["never_open"] == 0, PATIENCE)
    assert seen["calls"] == 1000


def test_unix_socket_and_several_addresses(tmp_path):
    path = tmp_path / "echo.sock"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    echo = Echo("127.0.0.1:0", "[::1]:0", f"unix:{path}")
    for target in (echo.target, f"unix:{path}"):
        with grpc.insecure_channel(target) as channel:
            assert unary(channel, "Unary")(b"hello", timeout=PATIENCE) == b"hello"
    assert echo.stop() == 0
    assert not path.exists()


def test_half_open_and_foreign_connections_are_closed():
    echo = Echo(RPC_ECHO_PREFACE_MS="200")
    silent = socket.create_connection(("127.0.0.1", echo.port))
    http1 = socket.create_connection(("127.0.0.1", echo.port))
    http1.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    for each in (silent, http1):
        each.settimeout(PATIENCE)
        try:
            while each.recv(4096):
                pass
        except ConnectionResetError:
            pass
        each.close()
    with grpc.insecure_channel(echo.target) as channel:
        assert unary(channel, "Unary")(b"hello", timeout=PATIENCE) == b"hello"
    assert echo.stop() == 0


def test_drain_finishes_open_calls_and_sends_the_client_elsewhere():
    echo = Echo()
    with grpc.insecure_channel(echo.target) as channel:
        bidi_input = threading.Event()

        def requests():
            yield b"before"
            assert bidi_input.wait(PATIENCE)
            yield b"after"

        replies = channel.stream_stream("/echo.Echo/Bidi")(requests(), timeout=PATIENCE)
        assert next(replies) == b"before"
        echo.process.send_signal(signal.SIGTERM)

        # Told to go, the client makes a new connection for a new call, which is refused; the old call goes on.
        def is_sent_away():
            try:
                unary(channel, "Unary")(b"", timeout=PATIENCE)
                return False
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.UNAVAILABLE
                return True

        wait_until(is_sent_away, PATIENCE)
        assert echo.process.poll() is None
        bidi_input.set()
        assert list(replies) == [b"after"]
        assert echo.process.wait(PATIENCE) == 0
