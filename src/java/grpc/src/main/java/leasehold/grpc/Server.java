package leasehold.grpc;

import io.grpc.ManagedChannel;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicLong;
import leasehold.Transport;

/** One address, and the way from it to the next. */
record Server(RpcTransport all, ManagedChannel channel, Path tokenFile, AtomicLong resetAt) {
    private static final long RESET_PAUSE = 500_000_000;

    Server(RpcTransport all, ManagedChannel channel, Path tokenFile) {
        this(all, channel, tokenFile, new AtomicLong(Transport.now() - RESET_PAUSE));
    }

    String address() {
        return channel.authority();
    }

    /** It did not answer in time: the next call asks the next one. */
    void leave() {
        all.leave(this);
    }

    /** It could not be reached. The channel's own pauses grow to two minutes: here they are half a second. */
    void leaveUnreached() {
        long last = resetAt.get();
        long now = Transport.now();
        if (now - last >= RESET_PAUSE && resetAt.compareAndSet(last, now)) {
            channel.resetConnectBackoff();
        }
        leave();
    }
}
