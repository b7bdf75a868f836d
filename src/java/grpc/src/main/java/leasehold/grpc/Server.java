package leasehold.grpc;

import io.grpc.ManagedChannel;
import java.nio.file.Path;

/** One address, and the way from it to the next. */
record Server(RpcTransport all, ManagedChannel channel, Path tokenFile) {
    String address() {
        return channel.authority();
    }

    /** It did not answer in time: the next call asks the next one. */
    void leave() {
        all.leave(this);
    }

    /** It could not be reached: the client's strategy, not the channel's, says when to try again. */
    void leaveUnreached() {
        channel.resetConnectBackoff();
        leave();
    }
}
