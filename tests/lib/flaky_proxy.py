"""A TCP proxy between a gRPC client and a server that does to replies what networks and middleboxes do to them.

    proxy = FlakyProxy("127.0.0.1:7420")
    proxy.decide = lambda: "drop"          asked once for each reply, and for each further message of a streamed one
    client(proxy.target)

It knows as much of HTTP/2 (RFC 9113) as it takes to act on whole replies: frames and their streams. What decide() may say:

    pass            as it is
    drop            the reply never arrives; the connection lives on
    ("delay", s)    it arrives s seconds later; other streams overtake it
    duplicate       it arrives twice. A message of a stream is then a second answer; a whole unary reply breaks the protocol
    truncate        half of its first message arrives, then the connection closes
    cut             the connection is reset in its place
    stop            from here on nothing passes this connection, either way, and it stays open

With `is_http` it is an HTTP/2 proxy: it answers the server's PINGs itself, whatever became of the client, and says in each request that
it is there. `messages_sent` counts what clients have sent, `accepted` their connections, refused ones too.

`decide_request` is asked for each request on its way to the server: pass, cut (the server never sees it), or hold: its message waits for
let_requests_go(), a cancellation of it is swallowed, and its reply goes nowhere. `held` counts messages that wait, `replies` those that the
server has sent. Header blocks can be dropped without confusing those that follow: the client's SETTINGS are rewritten so that the server uses
no dynamic table (RFC 7541, section 4.2).
"""
import asyncio
import collections
import socket
import struct
import threading

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, CONTINUATION = 0, 1, 3, 4, 6, 9
END_STREAM, ACK = 1, 1
MARK = b"\x00\x0fx-forwarded-for\x09192.0.2.1"  # a literal field without indexing (RFC 7541, section 6.2.2)
SETTINGS_HEADER_TABLE_SIZE = 1
READ_BYTES = 65536


class Frames:
    """Bytes in, whole frames out."""

    def __init__(self):
        self.bytes = bytearray()

    def feed(self, data):
        self.bytes += data
        while len(self.bytes) >= 9:
            size = int.from_bytes(self.bytes[:3], "big") + 9
            if len(self.bytes) < size:
                return
            frame = bytes(self.bytes[:size])
            del self.bytes[:size]
            yield frame


def kind_of(frame):
    return frame[3]


def flags_of(frame):
    return frame[4]


def resized(body, frame):
    return len(body).to_bytes(3, "big") + frame[3:9] + body


def stream_of(frame):
    return int.from_bytes(frame[5:9], "big") & 0x7FFFFFFF


class Connection:
    """One connection of the client's, and the one to the server that belongs to it."""

    def __init__(self, proxy, client, server):
        self.proxy = proxy
        self.client, self.server = client, server  # (reader, writer)
        self.actions = {}  # stream: what decide() said to its reply
        self.messages = collections.Counter()  # stream: DATA frames so far
        self.held = collections.defaultdict(list)  # stream: frames that wait for their delay
        self.twice = collections.defaultdict(list)  # stream: the frames of a reply that is to come again
        self.late = {}  # stream: the DATA frames of a request that is held
        self.is_stopped = False

    async def run(self):
        tasks = [asyncio.ensure_future(self.requests()), asyncio.ensure_future(self.replies())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            self.close()

    def close(self):
        for _, writer in (self.client, self.server):
            writer.close()

    def reset(self):
        """RST to both sides, not FIN: nothing that is on its way arrives."""
        for _, writer in (self.client, self.server):
            sock = writer.get_extra_info("socket")
            if sock is not None and sock.fileno() >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def read(self, reader):
        data = await reader.read(READ_BYTES)
        while self.is_stopped or self.proxy.is_frozen:
            await asyncio.sleep(0.01)
        return data

    async def requests(self):
        reader, writer = self.client[0], self.server[1]
        writer.write(await reader.readexactly(len(PREFACE)))
        frames, has_settings = Frames(), False
        while True:
            data = await self.read(reader)
            if not data:
                return
            for frame in frames.feed(data):
                if kind_of(frame) == SETTINGS and not flags_of(frame) & ACK and not has_settings:
                    has_settings = True
                    body = frame[9:] + struct.pack(">HI", SETTINGS_HEADER_TABLE_SIZE, 0)
                    frame = resized(body, frame)
                if kind_of(frame) == HEADERS:
                    self.proxy.requests += 1
                    action = self.proxy.say(self.proxy.decide_request)
                    if action == "cut":
                        self.reset()
                        return
                    if action == "hold":
                        self.late[stream_of(frame)] = []
                        self.actions[stream_of(frame)] = "drop"
                    if self.proxy.is_http:
                        frame = resized(frame[9:] + MARK, frame)
                self.proxy.messages_sent += kind_of(frame) == DATA and len(frame) > 9
                if stream_of(frame) in self.late and kind_of(frame) in (DATA, RST_STREAM):
                    self.late[stream_of(frame)] += [frame] * (kind_of(frame) == DATA)
                    continue
                writer.write(frame)
            await writer.drain()

    async def replies(self):
        reader, writer = self.server[0], self.client[1]
        frames = Frames()
        while True:
            data = await self.read(reader)
            if not data:
                return
            for frame in frames.feed(data):
                if self.reply_frame(frame) is False:
                    return
                while self.is_stopped:
                    await asyncio.sleep(0.01)
            await writer.drain()

    def reply_frame(self, frame):
        stream, kind = stream_of(frame), kind_of(frame)
        if kind == PING and not flags_of(frame) & ACK and self.proxy.is_http:
            self.server[1].write(frame[:4] + bytes([ACK]) + frame[5:])
            return True
        if stream == 0 or kind not in (DATA, HEADERS, CONTINUATION, RST_STREAM):
            self.client[1].write(frame)
            return True
        if stream not in self.actions:
            self.proxy.replies += 1
            self.actions[stream] = self.proxy.say(self.proxy.decide)
        if kind == DATA and len(frame) > 9:
            self.messages[stream] += 1
            if self.messages[stream] > 1 and not self.held[stream]:
                self.actions[stream] = self.proxy.say(self.proxy.decide)  # a streamed reply's next message
        return self.act(stream, kind, frame)

    def act(self, stream, kind, frame):
        action, seconds = self.actions[stream], 0
        if isinstance(action, tuple):
            action, seconds = action
        if self.held[stream]:
            self.held[stream].append(frame)
        elif action == "delay":
            self.held[stream].append(frame)
            asyncio.get_running_loop().call_later(seconds, self.let_go, stream)
        elif action == "cut":
            self.reset()
            return False
        elif action == "truncate" and kind == DATA:
            self.client[1].write(frame[: 9 + (len(frame) - 9) // 2])
            return False
        elif action == "stop":
            self.is_stopped = True
        elif action == "duplicate":
            self.duplicate(stream, kind, frame)
        elif action != "drop":
            self.client[1].write(frame)
        return True

    def duplicate(self, stream, kind, frame):
        self.client[1].write(frame)
        if self.messages[stream] > 1 and kind == DATA:
            self.client[1].write(frame)
            return
        self.twice[stream].append(frame)
        if flags_of(frame) & END_STREAM and kind in (DATA, HEADERS):
            for again in self.twice.pop(stream):
                self.client[1].write(again)

    def let_requests_go(self):
        for frames in self.late.values():
            while frames:
                self.server[1].write(frames.pop(0))

    def let_go(self, stream):
        frames = self.held.pop(stream, ())
        self.actions[stream] = "pass"
        if not self.client[1].is_closing():
            for frame in frames:
                self.client[1].write(frame)


class FlakyProxy:
    """Runs on a thread of its own; decide and decide_request are called there."""

    def __init__(self, server):
        host, port = server.rsplit(":", 1)
        self.server = (host, int(port))
        self.decide = lambda: "pass"
        self.decide_request = lambda: "pass"
        self.is_frozen = False  # nothing passes, connections are accepted and stay open
        self.is_refusing = False  # whoever connects is reset
        self.is_http = False
        self.accepted = self.requests = self.messages_sent = self.replies = 0
        self.actions = collections.Counter()
        self.connections = set()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self._is_up = threading.Event()
        self.thread.start()
        assert self._is_up.wait(10)

    def _run(self):
        asyncio.set_event_loop(self.loop)
        self.listener = self.loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port = self.listener.sockets[0].getsockname()[1]
        self._is_up.set()
        self.loop.run_forever()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))

    @property
    def target(self):
        return f"127.0.0.1:{self.port}"

    @property
    def held(self):
        return sum(len(frames) for connection in list(self.connections) for frames in list(connection.late.values()))

    def say(self, decide):
        action = decide()
        self.actions[action if isinstance(action, str) else action[0]] += 1
        return action

    async def _accept(self, reader, writer):
        self.accepted += 1
        if self.is_refusing:
            writer.transport.abort()
            return
        try:
            server = await asyncio.open_connection(*self.server)
        except OSError:
            writer.transport.abort()
            return
        connection = Connection(self, (reader, writer), server)
        self.connections.add(connection)
        try:
            await connection.run()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.connections.discard(connection)

    def cut_all(self):
        """Every connection there is breaks now."""

        def cut():
            for connection in list(self.connections):
                connection.reset()

        self.loop.call_soon_threadsafe(cut)

    def let_requests_go(self):
        def let_go():
            for connection in self.connections:
                connection.let_requests_go()

        self.loop.call_soon_threadsafe(let_go)

    def thaw(self):
        """What was stopped or frozen goes on."""

        def thaw():
            self.is_frozen = False
            for connection in self.connections:
                connection.is_stopped = False

        self.loop.call_soon_threadsafe(thaw)

    def close(self):
        def stop():
            self.listener.close()
            for connection in list(self.connections):
                connection.reset()
            self.loop.stop()

        self.loop.call_soon_threadsafe(stop)
        self.thread.join(10)
