package leasehold;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.net.SocketAddress;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedSelectorException;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import javax.net.SocketFactory;

/**
 * Lets pgjdbc connect to a PostgreSQL that listens on a unix socket alone, as that of deploy/quickstart does. The host and port of the URL
 * do not count then:
 *
 * <pre>{@code
 * jdbc:postgresql://localhost/postgres?user=NAME&socketFactory=leasehold.UnixSocketFactory&socketFactoryArg=/PATH/.s.PGSQL.5432
 * }</pre>
 */
public final class UnixSocketFactory extends SocketFactory {
    private final String path;

    /**
     * What pgjdbc calls.
     *
     * @param path of the socket
     */
    public UnixSocketFactory(String path) {
        this.path = path;
    }

    @Override
    public Socket createSocket() throws IOException {
        return new UnixSocket(path);
    }

    @Override
    public Socket createSocket(String host, int port) throws IOException {
        return createSocket();
    }

    @Override
    public Socket createSocket(String host, int port, InetAddress local, int localPort) throws IOException {
        return createSocket();
    }

    @Override
    public Socket createSocket(InetAddress host, int port) throws IOException {
        return createSocket();
    }

    @Override
    public Socket createSocket(InetAddress host, int port, InetAddress local, int localPort) throws IOException {
        return createSocket();
    }

    /** A channel with the face of a socket, as far as pgjdbc uses one: streams, and a time for each read. */
    private static final class UnixSocket extends Socket {
        private final SocketChannel channel;
        private final Selector readable = Selector.open();
        private final Selector writable = Selector.open();
        private volatile int timeout; // milliseconds; 0: none

        UnixSocket(String path) throws IOException {
            try {
                channel = SocketChannel.open(UnixDomainSocketAddress.of(path));
            } catch (IOException e) {
                throw new IOException("unix socket " + path + ": " + e.getMessage(), e);
            }
            channel.configureBlocking(false);
            channel.register(readable, SelectionKey.OP_READ);
            channel.register(writable, SelectionKey.OP_WRITE);
        }

        private int read(byte[] bytes, int offset, int length) throws IOException {
            ByteBuffer buffer = ByteBuffer.wrap(bytes, offset, length);
            long until = System.nanoTime() + timeout * 1_000_000L;
            for (int count = channel.read(buffer);; count = channel.read(buffer)) {
                long left = (until - System.nanoTime() + 999_999) / 1_000_000;
                if (count != 0 || length == 0) {
                    return count;
                }
                if (timeout > 0 && left <= 0) {
                    throw new SocketTimeoutException("Read timed out");
                }
                await(readable, timeout > 0 ? left : 0);
            }
        }

        private void write(byte[] bytes, int offset, int length) throws IOException {
            ByteBuffer buffer = ByteBuffer.wrap(bytes, offset, length);
            while (buffer.hasRemaining()) {
                if (channel.write(buffer) == 0) {
                    await(writable, 0);
                }
            }
        }

        /** An interrupt of the thread is left for later, as with other sockets: it ends neither the wait nor the connection. */
        private static void await(Selector selector, long millis) throws IOException {
            boolean isInterrupted = Thread.interrupted();
            try {
                selector.select(millis);
                selector.selectedKeys().clear();
            } catch (ClosedSelectorException e) { // by close(), in another thread
                throw new SocketException("the socket is closed");
            }
            if (isInterrupted || Thread.interrupted()) {
                Thread.currentThread().interrupt();
            }
        }

        @Override
        public void connect(SocketAddress unused, int millis) {
            // It is connected.
        }

        @Override
        public boolean isConnected() {
            return true;
        }

        @Override
        public boolean isClosed() {
            return !channel.isOpen();
        }

        @Override
        public InputStream getInputStream() {
            return new InputStream() {
                @Override
                public int read() throws IOException {
                    byte[] one = new byte[1];
                    return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
                }

                @Override
                public int read(byte[] bytes, int offset, int length) throws IOException {
                    return UnixSocket.this.read(bytes, offset, length);
                }
            };
        }

        @Override
        public OutputStream getOutputStream() {
            return new OutputStream() {
                @Override
                public void write(int one) throws IOException {
                    write(new byte[] {(byte) one}, 0, 1);
                }

                @Override
                public void write(byte[] bytes, int offset, int length) throws IOException {
                    UnixSocket.this.write(bytes, offset, length);
                }
            };
        }

        @Override
        public void setSoTimeout(int millis) {
            timeout = millis;
        }

        @Override
        public int getSoTimeout() {
            return timeout;
        }

        @Override
        public void setTcpNoDelay(boolean unused) {
            // There is no TCP.
        }

        @Override
        public void setKeepAlive(boolean unused) {
            // There is no TCP.
        }

        @Override
        public synchronized void close() throws IOException {
            channel.close();
            readable.close();
            writable.close();
        }
    }
}
