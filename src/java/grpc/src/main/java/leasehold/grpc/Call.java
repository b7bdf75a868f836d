package leasehold.grpc;

import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.Grpc;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.EnumSet;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import leasehold.LeaseException;
import leasehold.Retry;
import leasehold.Transport;

/** One call of one server. What is heard of it is read from a queue, message by message. */
final class Call<Q, A> implements AutoCloseable {
    private static final Metadata.Key<String> AUTHORIZATION = Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
    private static final EnumSet<Retry.Reason> STAYS = EnumSet.of(Retry.Reason.UNKNOWN, Retry.Reason.BLOCKING_TIMEOUT, Retry.Reason.SCOPE_BUSY,
            Retry.Reason.OUTCOME_RETRY, Retry.Reason.RETRY_INFO); // as leasehold_retry.h says, the same server is asked again
    private static final long SLICE = 100_000_000; // how soon a caller who has given up is seen

    /** What is heard: an answer, or the end. */
    private record News<A>(A answer, Status status, Metadata trailers) {
    }

    private final Server server;
    private final Errors errors;
    private final ClientCall<Q, A> call;
    private final LinkedBlockingQueue<News<A>> news = new LinkedBlockingQueue<>();
    private volatile boolean isOver;

    Call(Server server, MethodDescriptor<Q, A> method, Errors errors) {
        this.server = server;
        this.errors = errors;
        Metadata headers = new Metadata();
        if (server.tokenFile() != null) {
            headers.put(AUTHORIZATION, "Bearer " + token(server.tokenFile()));
        }
        server.all().telemetry.outgoing().forEach((name, value) -> headers.put(Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER), value));
        call = server.channel().newCall(method, CallOptions.DEFAULT);
        call.start(new ClientCall.Listener<A>() {
            @Override
            public void onMessage(A answer) {
                news.add(new News<>(answer, null, null));
            }

            @Override
            public void onClose(Status status, Metadata trailers) {
                news.add(new News<>(null, status, trailers));
            }
        }, headers);
        call.request(1);
    }

    /** An empty file is being written. */
    private static String token(Path file) {
        String text;
        try {
            text = Files.readString(file).strip();
        } catch (IOException e) {
            throw new LeaseException.Unavailable("the token's file cannot be read: " + e, e, Retry.Reason.SOCKET_NOT_AVAILABLE);
        }
        if (text.isEmpty()) {
            throw new LeaseException.Unavailable("the token's file " + file + " is empty", null, Retry.Reason.SOCKET_NOT_AVAILABLE);
        }
        return text;
    }

    /** The only request. */
    Call<Q, A> ask(Q request) {
        say(request);
        call.halfClose();
        return this;
    }

    void say(Q request) {
        call.sendMessage(request);
    }

    /** The next answer; null where there is none by `until`, or the caller has given up. The end of the call is an exception. */
    A next(long until, BooleanSupplier isGivenUp) {
        boolean isInterrupted = false;
        try {
            for (long left = until - Transport.now();; left = until - Transport.now()) {
                News<A> heard = null;
                try {
                    heard = news.poll(Math.max(0, Math.min(left, SLICE)), TimeUnit.NANOSECONDS);
                } catch (InterruptedException e) { // it is for the caller, unless it is one that gives up then
                    Thread.currentThread().interrupt();
                    if (isGivenUp.getAsBoolean()) {
                        return null;
                    }
                    isInterrupted = Thread.interrupted();
                }
                if (heard != null && heard.status != null) {
                    isOver = true;
                    throw failed(heard.status, heard.trailers);
                }
                if (heard != null) {
                    call.request(1);
                    return heard.answer;
                }
                if (left <= 0 || isGivenUp.getAsBoolean()) {
                    return null;
                }
            }
        } finally {
            if (isInterrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /** The only answer, within so long. */
    A answer(long nanos) {
        A answer = next(Transport.now() + nanos, () -> false);
        if (answer == null) {
            throw silent();
        }
        isAnswered();
        return answer;
    }

    /** The server ends the call by itself: a reset in place of its end could take a grant back. */
    void isAnswered() {
        isOver = true;
    }

    /** Gives up a server that does not answer in time. */
    LeaseException.Unavailable silent() {
        server.leave();
        return new LeaseException.Unavailable(server.address() + " did not answer in time", null,
                isSent() ? Retry.Reason.SOCKET_CLOSED_WHILE_IN_FLIGHT : Retry.Reason.SOCKET_NOT_AVAILABLE);
    }

    private boolean isSent() {
        return call.getAttributes().get(Grpc.TRANSPORT_ATTR_REMOTE_ADDR) != null;
    }

    private RuntimeException failed(Status status, Metadata trailers) {
        RuntimeException e = errors.of(status.isOk() ? Status.UNAVAILABLE.withDescription("the server ended the call without an answer") : status, trailers,
                isSent());
        if (e instanceof LeaseException.Unavailable unavailable && !STAYS.contains(unavailable.reason())) {
            server.leaveUnreached();
        }
        return e;
    }

    /** Resets the call, unless it has ended. */
    @Override
    public void close() {
        if (!isOver) {
            call.cancel("it is not needed any more", null);
        }
    }
}
