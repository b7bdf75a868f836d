package leasehold;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/**
 * A proxy before PostgreSQL. While it is frozen, answers do not pass; while it refuses, there are no connections. What is said on connections that are held up
 * arrives when they are let go, although the client has closed them.
 */
final class Pipe implements DirectCases.Way, AutoCloseable {
    private final ServerSocket listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    private final String url;
    private final int port;
    private final List<Socket> sockets = new ArrayList<>();
    private final ByteArrayOutputStream said = new ByteArrayOutputStream(); // by clients
    private final Set<Socket> heldUp = new HashSet<>();
    private boolean isFrozen;
    private boolean isRefusing;

    Pipe(String url) throws IOException {
        this.url = url;
        port = Integer.parseInt(url.replaceFirst(".*:(\\d+)/.*", "$1"));
        start(() -> {
            while (true) {
                Socket client = listener.accept();
                if (isRefusing()) {
                    client.close();
                    continue;
                }
                Socket server = new Socket(InetAddress.getLoopbackAddress(), port);
                synchronized (this) {
                    sockets.add(client);
                    sockets.add(server);
                }
                start(() -> copy(client, server, false));
                start(() -> copy(server, client, true));
            }
        });
    }

    private interface Work {
        void run() throws IOException, InterruptedException;
    }

    private static void start(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (IOException | InterruptedException closed) {
                return;
            }
        }, "pipe");
        thread.setDaemon(true);
        thread.start();
    }

    private void copy(Socket from, Socket to, boolean isAnswer) throws IOException, InterruptedException {
        try (from; to) {
            byte[] buffer = new byte[65536];
            for (int n = from.getInputStream().read(buffer); n > 0; n = from.getInputStream().read(buffer)) {
                synchronized (this) {
                    while (isAnswer && isFrozen) {
                        wait();
                    }
                    if (!isAnswer) {
                        said.write(buffer, 0, n);
                    }
                    while (heldUp.contains(from)) {
                        wait();
                    }
                }
                to.getOutputStream().write(buffer, 0, n);
            }
        }
    }

    String url() {
        return url.replace(":" + port + "/", ":" + listener.getLocalPort() + "/");
    }

    @Override
    public LeaseClient.Builder builder() {
        return LeaseClient.builder(url()).patience(Site.seconds(20));
    }

    @Override
    public synchronized void freeze(boolean on) {
        isFrozen = on;
        notifyAll();
    }

    @Override
    public void keepAnswers(boolean on) {
        freeze(on);
    }

    @Override
    public void delayAnswer(boolean on) {
        keepAnswers(on);
    }

    /** The connections that there are. */
    synchronized void holdUp(boolean on) {
        heldUp.clear();
        if (on) {
            heldUp.addAll(sockets);
        }
        notifyAll();
    }

    private synchronized boolean isRefusing() {
        return isRefusing;
    }

    synchronized void refuse(boolean on) throws IOException {
        isRefusing = on;
        cut();
    }

    private void cut() throws IOException {
        for (Socket socket : sockets) {
            socket.close();
        }
        sockets.clear();
    }

    synchronized int said() {
        return said.size();
    }

    synchronized String saidSince(int n) {
        return said.toString(StandardCharsets.ISO_8859_1).substring(n);
    }

    @Override
    public synchronized void close() throws IOException {
        listener.close();
        freeze(false);
        holdUp(false);
        cut();
    }
}
