"""Clients that send HTTP/2 by hand, as much of it as the daemon takes, and read what comes without looking at it.

    flood.py KIND PORT [CA]   floods 127.0.0.1:PORT from 127.0.0.2 (HANDSHAKES: and more) until it is ended; prints a line for each connection it lost

With the certificate of an authority it speaks TLS.

A kind is a number of connections and what each of them sends: a generator of bytes. The next is asked for when the ones
before are with the system, so the daemon sets the pace. A connection that ends begins anew.
"""
import selectors
import socket
import ssl
import struct
import sys
import time
import uuid

DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS = 1, 4
INITIAL_WINDOW_SIZE = 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
LEASE, REFLECTION = "/leasehold.v1.LeaseService/", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def setting(number, value):
    return frame(SETTINGS, payload=struct.pack(">HI", number, value))


BEGIN = PREFACE + frame(SETTINGS)
NO_WINDOW = PREFACE + setting(INITIAL_WINDOW_SIZE, 0)


def text(value):
    value = value.encode()
    return bytes((len(value),)) + value if len(value) < 127 else b"\x7f" + varint(len(value) - 127) + value


def varint(number):
    out = b""
    while number > 0x7F:
        out += bytes((0x80 | number & 0x7F,))
        number >>= 7
    return out + bytes((number,))


def headers(path, authority="x"):
    """A block: literals without an index."""
    return b"".join(b"\0" + text(name) + text(value) for name, value in (
        (":method", "POST"), (":scheme", "http"), (":path", path), (":authority", authority), ("content-type", "application/grpc"),
        ("te", "trailers")))


def message(data):
    return b"\0" + struct.pack(">I", len(data)) + data


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def call(stream, block, data=b"", is_whole=True):
    return frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM if is_whole else 0, stream, message(data))


def acquire(namespace, key, seconds, wait):
    """The request, with a wait of so many seconds."""
    return (field(1, field(1, namespace) + field(2, key)) + field(2, field(1, seconds)) + (field(3, field(1, wait)) if wait else b"") +
            field(6, str(uuid.uuid4())))


def streams():
    return range(1, 2**31, 2)


# --- what they send ---


def continuation():
    yield BEGIN + frame(HEADERS, 0, 1, headers(LEASE + "Acquire"))
    while True:
        yield frame(CONTINUATION, 0, 1, b"\0\1x\1y") * 100


def hpack_bomb():
    """Every byte is a field of 4 KB, out of the table that the first one filled."""
    entry = b"\x40" + text("x") + b"\x7f" + varint(4000 - 127) + b"y" * 4000
    yield BEGIN
    for stream in streams():
        block = headers(LEASE + "Acquire") + entry + b"\xbe" * 1_000_000
        pieces = [block[at:at + 16384] for at in range(0, len(block), 16384)]
        yield frame(HEADERS, END_STREAM, stream, pieces[0])
        for piece in pieces[1:-1]:
            yield frame(CONTINUATION, 0, stream, piece)
        yield frame(CONTINUATION, END_HEADERS, stream, pieces[-1])


def reset():
    block = headers(LEASE + "Acquire")
    request = acquire("flood", "reset", 5, 60)
    yield BEGIN
    for stream in streams():
        yield call(stream, block, request) + frame(RST_STREAM, 0, stream, struct.pack(">I", 8))


def ping():
    yield BEGIN
    while True:
        yield frame(PING, payload=b"12345678") * 100


def windows():
    """The initial window of a thousand open calls, up and down."""
    block = headers(LEASE + "Acquire")
    yield BEGIN
    for stream in range(1, 2001, 2):
        yield call(stream, block, acquire("flood", "windows", 5, 600))
    while True:
        yield (setting(INITIAL_WINDOW_SIZE, 0) + setting(INITIAL_WINDOW_SIZE, 65535)) * 50


def window_update():
    yield BEGIN
    while True:
        yield frame(WINDOW_UPDATE, payload=struct.pack(">I", 1)) * 100


def empty_data():
    yield BEGIN + frame(HEADERS, END_HEADERS, 1, headers(LEASE + "Acquire"))
    while True:
        yield frame(DATA, 0, 1) * 100


def slow_headers():
    yield BEGIN + frame(HEADERS, 0, 1, headers(LEASE + "Acquire"))
    while True:
        yield 0.2
        yield frame(CONTINUATION, 0, 1, b"\0\1x\1y")


def no_preface():
    while True:
        yield 60


def hello():
    """The first part of a TLS handshake, and nothing more."""
    context, sent = ssl.create_default_context(), ssl.MemoryBIO()
    context.check_hostname = False
    context.set_alpn_protocols(["h2"])
    try:
        context.wrap_bio(ssl.MemoryBIO(), sent).do_handshake()
    except ssl.SSLWantReadError:
        yield sent.read()
    yield 60


def unfinished():
    """Each request has 4 MiB, but for its last byte."""
    block = headers(LEASE + "Heartbeat")
    yield BEGIN
    for stream in streams():
        yield frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, 0, stream, b"\0" + struct.pack(">I", 4 * 1024 * 1024))
        for _ in range(15):
            yield frame(DATA, 0, stream, b"x" * 16384)


def lists():
    """Answers of hundreds of kilobytes, of which none may be sent."""
    block, request = headers(LEASE + "ListLeases"), field(1, "many") + field(3, 1000)
    yield NO_WINDOW
    for stream in streams():
        yield call(stream, block, request)
        if stream % 200 == 1:
            yield 0.01


def reflection():
    block, request = headers(REFLECTION), field(4, "leasehold.v1.LeaseService")
    yield NO_WINDOW
    for stream in streams():
        yield call(stream, block, request, is_whole=False) + frame(DATA, 0, stream, message(request) * 100)


def watches():
    """A thousand that begin with all that is held, and are not read."""
    block, request = headers(LEASE + "WatchLeases"), field(1, "many") + field(3, 1)
    yield NO_WINDOW
    for stream in range(1, 2001, 2):
        yield call(stream, block, request)
    yield 60


def eager():
    """Correct, and a thousand calls at once, again and again: pairs would be the same."""
    block = headers(LEASE + "Acquire")
    yield BEGIN
    for stream in streams():
        yield call(stream, block, acquire("flood", "eager%d" % (stream % 5000), 1, 0))
        if stream % 2000 == 1999:
            yield 0.2


def places():
    """Every place in queues there is."""
    block = headers(LEASE + "Acquire")
    yield BEGIN
    for stream in range(1, 19999, 2):
        yield call(stream, block, acquire("flood", "place%d" % (stream % 7), 60, 3600))
    yield 60


KINDS = {
    "continuation": (4, continuation),
    "hpack-bomb": (4, hpack_bomb),
    "reset": (1, reset),
    "resets": (40, reset),
    "ping": (4, ping),
    "settings": (4, windows),
    "window-update": (4, window_update),
    "empty-data": (4, empty_data),
    "slow-headers": (40, slow_headers),
    "no-preface": (700, no_preface),
    "unfinished": (20, unfinished),
    "lists": (20, lists),
    "reflection": (20, reflection),
    "watches": (4, watches),
    "eager": (20, eager),
    "places": (1, places),
}
# By hand too, to a daemon with TLS, and from so many addresses that no bound of one of them stops it.
HANDSHAKES = {"hello": (800, hello)}
ADDRESSES = 40


class Connection:
    def __init__(self, selector, address, port, send, tls):
        self.selector, self.address, self.port, self.send, self.tls = selector, address, port, send, tls
        self.open()

    def open(self):
        self.generator, self.rest, self.resume_at = self.send(), b"", 0.0
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind((self.address, 0))
        if self.tls:  # begins its handshake with the first read or write
            self.socket.connect_ex(("127.0.0.1", self.port))
            self.socket = self.tls.wrap_socket(self.socket, do_handshake_on_connect=False)
        self.socket.setblocking(False)
        if not self.tls:
            self.socket.connect_ex(("127.0.0.1", self.port))
        self.selector.register(self.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, self)

    def again(self):
        self.selector.unregister(self.socket)
        self.socket.close()
        print("lost", flush=True)
        self.open()

    def rests(self, now):
        self.selector.modify(self.socket, selectors.EVENT_READ | (selectors.EVENT_WRITE if now >= self.resume_at else 0), self)

    def write(self, now):
        if not self.rest:
            more = next(self.generator)
            if isinstance(more, (int, float)):
                self.resume_at = now + more
                return
            self.rest = more
        self.rest = self.rest[self.socket.send(self.rest):]

    def on_ready(self, events, now):
        try:
            if events & selectors.EVENT_READ and not self.socket.recv(1 << 16):
                raise ConnectionResetError
            if events & selectors.EVENT_WRITE:
                for _ in range(16):
                    if now >= self.resume_at:
                        self.write(now)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except StopIteration:
            self.resume_at = now + 60
        except OSError:
            self.again()


def main(kind, port, authority=None):
    count, send = {**KINDS, **HANDSHAKES}[kind]
    addresses = ADDRESSES if kind in HANDSHAKES else 1
    selector = selectors.DefaultSelector()
    tls = ssl.create_default_context(cafile=authority) if authority else None
    if tls:
        tls.check_hostname = False
        tls.set_alpn_protocols(["h2"])
    connections = [Connection(selector, f"127.0.0.{2 + i % addresses}", int(port), send, tls) for i in range(count)]
    print("begun", flush=True)
    while True:
        ready = selector.select(0.05)
        now = time.monotonic()
        for key, events in ready:
            key.data.on_ready(events, now)
        for connection in connections:
            connection.rests(now)


if __name__ == "__main__":
    main(*sys.argv[1:])
