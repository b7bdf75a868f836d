package leasehold.testing;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ByteChannel;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;

/** Between clients and PostgreSQL: from a port of loopback to its socket. What happens to answers is guarded by `this`. */
final class Pipe {
    private static final int SIZE = 65_536;
    private final ServerSocketChannel listener = ServerSocketChannel.open();
    private final Path server;
    private final ArrayDeque<Duration> faults = new ArrayDeque<>(); // of the next answers; zero: it is lost
    private final List<SocketChannel> open = new ArrayList<>();
    private boolean isSilent;
    private boolean isClosed;

    Pipe(Path server) throws IOException {
        this.server = server;
        listener.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
        start(this::accept);
    }

    private static void start(Runnable task) {
        Thread thread = new Thread(task, "leasehold-test");
        thread.setDaemon(true);
        thread.start();
    }

    int port() {
        return listener.socket().getLocalPort();
    }

    synchronized void add(Duration fault) {
        faults.add(fault);
    }

    synchronized void silence(boolean on) {
        isSilent = on;
        notifyAll();
    }

    synchronized void close() {
        isClosed = true;
        notifyAll();
        cut(listener);
        open.forEach(Pipe::cut);
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
                    join(client, SocketChannel.open(UnixDomainSocketAddress.of(server)));
                } catch (IOException e) { // it starts again
                    cut(client);
                }
            } catch (IOException e) {
                return;
            }
        }
    }

    private void join(SocketChannel client, SocketChannel database) {
        AtomicBoolean isAsked = new AtomicBoolean(); // something of Leasehold's
        synchronized (this) {
            open.add(client);
            open.add(database);
        }
        start(() -> copy(client, database, data -> {
            if (StandardCharsets.ISO_8859_1.decode(data.duplicate()).toString().contains("leasehold.")) {
                isAsked.set(true);
            }
            return true;
        }));
        start(() -> copy(database, client, data -> answers(isAsked)));
    }

    private interface Gate {
        boolean lets(ByteBuffer data) throws InterruptedException;
    }

    private static void copy(ByteChannel from, ByteChannel to, Gate gate) {
        ByteBuffer buffer = ByteBuffer.allocate(SIZE);
        try {
            while (from.read(buffer.clear()) >= 0 && gate.lets(buffer.flip())) {
                while (buffer.hasRemaining()) {
                    to.write(buffer);
                }
            }
        } catch (IOException | InterruptedException e) {
            return; // the other end is cut too
        } finally {
            cut(from);
            cut(to);
        }
    }

    /** False: this answer is lost. */
    private boolean answers(AtomicBoolean isAsked) throws InterruptedException {
        Duration fault;
        synchronized (this) {
            while (isSilent && !isClosed) {
                wait();
            }
            fault = isAsked.getAndSet(false) ? faults.poll() : null;
        }
        if (fault != null && !fault.isZero()) {
            Thread.sleep(fault.toMillis());
        }
        return fault == null || !fault.isZero();
    }
}
