package leasehold.grpc;

import io.grpc.ChannelCredentials;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.function.Consumer;
import java.util.regex.Pattern;
import leasehold.LeaseException;
import leasehold.Telemetry;
import leasehold.Transport;

/**
 * Connects a client with one daemon or several.
 *
 * <pre>{@code
 * LeaseClient client = LeaseClient.builder(Daemons.at("127.0.0.1:7420")).build();
 * }</pre>
 *
 * <p>A call that fails, or is not answered in time, makes the next call use the next address.
 */
public final class Daemons implements Transport.Factory {
    // A name that only begins like a loopback address is another host's.
    private static final Pattern NOBODY_LISTENS = Pattern.compile("unix:.*|((?i:localhost)|\\[::1\\]|127(\\.(\\d|[1-9]\\d|1\\d\\d|2[0-4]\\d|25[0-5])){3})(:\\d{1,5})?");

    private final List<String> addresses = new ArrayList<>();
    private ChannelCredentials credentials; // null: no TLS
    private Path tokenFile;
    private Consumer<ManagedChannelBuilder<?>> channels = each -> { };

    private Daemons(String target) {
        String all = Objects.requireNonNull(target, "target").startsWith("ipv4:") ? target.substring("ipv4:".length()) : target;
        for (String address : all.split(",", -1)) {
            addresses.add(address.strip());
        }
        for (String address : addresses) {
            if (address.isEmpty()) {
                throw new LeaseException.InvalidArgument("target", "host:port, unix:PATH, or several with commas between; it is \"" + target + "\"", null);
            }
        }
    }

    /**
     * The daemons at these addresses.
     *
     * @param target host:port, unix:PATH, or several with commas between
     * @return what makes a client's transport
     * @throws LeaseException.InvalidArgument there is an empty address
     */
    public static Daemons at(String target) {
        return new Daemons(target);
    }

    /**
     * Connects by TLS.
     *
     * @param value such as {@code TlsChannelCredentials.newBuilder().trustManager(ca).keyManager(certificate, key).build()}
     * @return this
     */
    public Daemons tls(ChannelCredentials value) {
        credentials = Objects.requireNonNull(value, "credentials");
        return this;
    }

    /**
     * Sends a bearer token with each call. The file is read for each, so that a new token counts at once.
     *
     * @param value the file
     * @return this
     */
    public Daemons tokenFile(Path value) {
        tokenFile = Objects.requireNonNull(value, "tokenFile");
        return this;
    }

    /**
     * Changes each channel before it is made, such as {@code each -> each.overrideAuthority("leasehold.internal")}.
     *
     * @param value is called for each address when the client is made
     * @return this
     */
    public Daemons channels(Consumer<ManagedChannelBuilder<?>> value) {
        channels = Objects.requireNonNull(value, "channels");
        return this;
    }

    /**
     * What {@link leasehold.LeaseClient.Builder#build} calls.
     *
     * @throws LeaseException.InvalidArgument an address would get the token in the clear, or is none
     */
    @Override
    public Transport open(Duration patience, Telemetry telemetry) {
        for (String address : addresses) {
            if (tokenFile != null && credentials == null && !NOBODY_LISTENS.matcher(address).matches()) {
                throw new LeaseException.InvalidArgument("target \"" + address + "\": a token is sent over TLS, unix sockets and loopback only: add TLS", "target",
                        "unix:PATH or loopback, without TLS", null);
            }
        }
        List<ManagedChannel> open = new ArrayList<>();
        try {
            for (String address : addresses) {
                ManagedChannelBuilder<?> builder = Grpc.newChannelBuilder(address, credentials == null ? InsecureChannelCredentials.create() : credentials)
                        .disableRetry() // the client repeats calls itself
                        .directExecutor(); // what a call hears goes into a queue
                channels.accept(builder);
                open.add(builder.build());
            }
        } catch (IllegalArgumentException e) {
            open.forEach(ManagedChannel::shutdownNow);
            throw new LeaseException.InvalidArgument("target", "host:port, unix:PATH, or several with commas between: " + e.getMessage(), e);
        }
        return new RpcTransport(open, tokenFile, patience.toNanos(), telemetry);
    }
}
