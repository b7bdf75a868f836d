"""A stream of gRPC through an HTTP/2 proxy, on h2 4.1.0: the frames that a client sends, and the events that the server sees."""
import select
import socket
import struct
import subprocess
import time

import h2.config
import h2.connection
import h2.events


class Peer:
    def __init__(self, sock, is_client):
        self.sock = sock
        self.http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=is_client))
        self.http.initiate_connection()
        self.flush()

    def flush(self):
        self.sock.sendall(self.http.data_to_send())

    def events(self, seconds):
        """What comes within that time; ConnectionTerminated when the connection ends."""
        if not select.select([self.sock], [], [], seconds)[0]:
            return []
        data = self.sock.recv(65536)
        events = self.http.receive_data(data) if data else [h2.events.ConnectionTerminated()]
        self.flush()
        return events

    def until(self, *kinds):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            for event in self.events(0.2):
                if isinstance(event, kinds):
                    return event
        raise TimeoutError(kinds)

    def reset(self):
        """As the kernel ends the connection of a process that was killed while it had not read everything."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


def through(command, address, listener, end_stream):
    """(the proxy's process, client, server) with one stream open, to which the server has answered with headers."""
    proxy = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(100):
        try:
            sock = socket.create_connection(address)
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    client = Peer(sock, True)
    client.http.send_headers(1, [(":method", "POST"), (":scheme", "http"), (":path", "/a.Service/Call"), (":authority", "a"),
                                 ("content-type", "application/grpc"), ("te", "trailers")], end_stream=end_stream)
    client.flush()
    server = Peer(listener.accept()[0], False)
    stream = server.until(h2.events.RequestReceived).stream_id
    server.http.send_headers(stream, [(":status", "200"), ("content-type", "application/grpc")])
    server.flush()
    client.until(h2.events.ResponseReceived)
    return proxy, client, server


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        return closed.getsockname()[1]
