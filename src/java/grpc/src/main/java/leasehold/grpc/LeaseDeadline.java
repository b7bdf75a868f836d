package leasehold.grpc;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.MethodDescriptor;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import leasehold.Lease;
import leasehold.Leases;

/**
 * Gives calls of the application's at most the time that is left of a lease, which gRPC passes on to the server, and that to its own calls:
 *
 * <pre>{@code
 * PaymentsGrpc.newBlockingStub(channel).withInterceptors(LeaseDeadline.of(lease)).pay(request);
 * }</pre>
 *
 * <p>A call that is under way is not moved by a later renewal.
 */
public final class LeaseDeadline implements ClientInterceptor {
    private final Supplier<Duration> remaining;

    private LeaseDeadline(Supplier<Duration> remaining) {
        this.remaining = remaining;
    }

    /**
     * What is left of a lease when a call begins.
     *
     * @param lease under which the calls are made
     * @return for withInterceptors of a stub; two of them give a call the shorter time
     */
    public static LeaseDeadline of(Lease lease) {
        return new LeaseDeadline(lease::remaining);
    }

    /**
     * What is left of the shortest of several leases when a call begins.
     *
     * @param leases under which the calls are made
     * @return for withInterceptors of a stub
     */
    public static LeaseDeadline of(Leases leases) {
        return new LeaseDeadline(leases::remaining);
    }

    @Override
    public <Q, A> ClientCall<Q, A> interceptCall(MethodDescriptor<Q, A> method, CallOptions options, Channel next) {
        CallOptions limited = options.withDeadlineAfter(remaining.get().toNanos(), TimeUnit.NANOSECONDS);
        boolean isShorter = options.getDeadline() == null || limited.getDeadline().isBefore(options.getDeadline());
        return next.newCall(method, isShorter ? limited : options);
    }
}
