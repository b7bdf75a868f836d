package leasehold.testing;

import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;

/** Between clients and a server of this world: from a port of loopback to its socket. */
final class Pipe {
    private static final int SIZE = 65_536;
    private static final int FRAME = 9; // bytes before what a frame of HTTP/2 carries: three are its length, then comes its type (RFC 9113)
    private static final byte HEADERS = 1; // an answer begins with this frame
    private final ServerSocketChannel listener = ServerSocketChannel.open();
    private final SocketAddress server;
    private final boolean isSql;
    private final Faults faults;
    private final List<SocketChannel> open = new ArrayList<>(); // guarded by itself

    /** Before PostgreSQL, or before a daemon. */
    Pipe(SocketAddress server, boolean isSql, Faults faults) throws IOException {
        this.server = server;
        this.isSql = isSql;
        this.faults = faults;
        listener.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
        start(this::accept);
    }

    private static void start(Runnable task) {
        Thread thread = new Thread(task, "leasehold-test");
        thread.setDaemon(true);
        thread.start();
    }

    String address() {
        return "127.0.0.1:" + listener.socket().getLocalPort();
    }

    void close() {
        cut(listener);
        synchronized (open) {
            open.forEach(Pipe::cut);
        }
    }

    private static void cut(AutoCloseable channel) {
        try {
            channel.close();
        } catch (Exception e) {
            return; // it is closed
        }
    }

    private void accept() {
        while (listener.isOpen()) {
            try {
                SocketChannel client = listener.accept();
                try {
                    join(client, SocketChannel.open(server));
                } catch (IOException e) { // it starts again
                    cut(client);
                }
            } catch (IOException e) {
                return;
            }
        }
    }

    private void join(SocketChannel client, SocketChannel to) {
        AtomicBoolean isAsked = new AtomicBoolean(); // something of Leasehold's, in SQL
        synchronized (open) {
            open.add(client);
            open.add(to);
        }
        start(() -> copy(client, to, Pipe::some, data -> {
            if (isSql && StandardCharsets.ISO_8859_1.decode(data.duplicate()).toString().contains("leasehold.")) {
                isAsked.set(true);
            }
            return true;
        }));
        if (isSql) {
            start(() -> copy(to, client, Pipe::some, data -> faults.lets(isAsked.getAndSet(false))));
        } else {
            start(() -> copy(to, client, Pipe::frame, data -> faults.lets(data.get(3) == HEADERS)));
        }
    }

    private interface Source {
        /** Null: it has ended. */
        ByteBuffer next(DataInputStream from) throws IOException;
    }

    private interface Gate {
        boolean lets(ByteBuffer data) throws InterruptedException;
    }

    private static ByteBuffer some(InputStream from) throws IOException {
        byte[] data = new byte[SIZE];
        int length = from.read(data);
        return length < 0 ? null : ByteBuffer.wrap(data, 0, length);
    }

    private static ByteBuffer frame(DataInputStream from) throws IOException {
        byte[] head = new byte[FRAME];
        from.readFully(head);
        byte[] rest = from.readNBytes(ByteBuffer.wrap(head).getInt() >>> 8);
        return ByteBuffer.allocate(FRAME + rest.length).put(head).put(rest).flip();
    }

    private static void copy(SocketChannel from, SocketChannel to, Source source, Gate gate) {
        try (from; to) {
            DataInputStream stream = new DataInputStream(Channels.newInputStream(from));
            for (ByteBuffer data = source.next(stream); data != null && gate.lets(data); data = source.next(stream)) {
                while (data.hasRemaining()) {
                    to.write(data);
                }
            }
        } catch (IOException | InterruptedException e) {
            return; // the other end is cut too
        }
    }
}
