package leasehold.grpc;

import io.grpc.ManagedChannel;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import java.util.stream.IntStream;
import leasehold.Explanation;
import leasehold.HandOver;
import leasehold.LeaseEvent;
import leasehold.LeaseException;
import leasehold.LeaseScope;
import leasehold.Retry;
import leasehold.Telemetry;
import leasehold.Transport;
import leasehold.v1.AcquireAllRequest;
import leasehold.v1.AcquireAllResponse;
import leasehold.v1.AcquireEvent;
import leasehold.v1.AcquireRequest;
import leasehold.v1.AcquireResponse;
import leasehold.v1.AskHandOverRequest;
import leasehold.v1.AskHandOverResponse;
import leasehold.v1.ClaimTickRequest;
import leasehold.v1.ClaimTickResponse;
import leasehold.v1.DowngradeRequest;
import leasehold.v1.DowngradeResponse;
import leasehold.v1.GetLeaseRequest;
import leasehold.v1.GetLeaseResponse;
import leasehold.v1.HeartbeatRequest;
import leasehold.v1.HeartbeatResponse;
import leasehold.v1.HeartbeatResult;
import leasehold.v1.LeaseServiceGrpc;
import leasehold.v1.Outcome;
import leasehold.v1.RefuseHandOverRequest;
import leasehold.v1.RefuseHandOverResponse;
import leasehold.v1.ReleaseRequest;
import leasehold.v1.ReleaseResponse;
import leasehold.v1.ScheduleServiceGrpc;
import leasehold.v1.WatchLeasesRequest;

/**
 * Daemons, each call one try at the one in use. gRPC would notice a server that hangs only after seconds, so each address has a channel of its own, and a
 * call that is not answered in time makes the next one use the next address.
 */
final class RpcTransport implements Transport {
    /** A server says something at least every 15 s on a stream: Watch and Hold; every 5 s on AcquireStream. */
    static final long SILENCE = 15_000_000_000L;
    private static final long CLAIM_WAIT = 10_000_000_000L; // the longest of one request for a tick; it shows that the server lives
    private static final long CLAIM_PAUSE = 100_000_000;
    private static final Errors OF_SEVERAL = new Errors(null);

    private final List<Server> servers = new ArrayList<>();
    private final AtomicInteger current = new AtomicInteger();
    final long patience;
    final Telemetry telemetry;
    private volatile boolean isClosed;

    RpcTransport(List<ManagedChannel> channels, Path tokenFile, long patience, Telemetry telemetry) {
        channels.forEach(each -> servers.add(new Server(this, each, tokenFile)));
        this.patience = patience;
        this.telemetry = telemetry;
    }

    Server pick() {
        if (isClosed) {
            throw new IllegalStateException("the client is closed");
        }
        return servers.get(current.get());
    }

    /** Makes the next address the current one, unless another call did so already. */
    void leave(Server server) {
        int index = servers.indexOf(server);
        current.compareAndSet(index, (index + 1) % servers.size());
    }

    private static LeaseException.Unavailable givenUp() {
        return new LeaseException.Unavailable("the caller has given up", null, Retry.Reason.SOCKET_CLOSED_WHILE_IN_FLIGHT);
    }

    @Override
    public Grant acquire(Ref ref, Terms terms, long until, BooleanSupplier isGivenUp) {
        if (terms.isHold()) {
            return Holding.begin(this, ref, terms, until, patience, isGivenUp);
        }
        try (var call = new Call<AcquireRequest, AcquireEvent>(pick(), LeaseServiceGrpc.getAcquireStreamMethod(), new Errors(ref))) {
            long sent = Transport.now();
            call.ask(Messages.acquire(ref, terms, until));
            for (long limit = patience;; limit = SILENCE) {
                AcquireEvent event = call.next(Transport.now() + limit, isGivenUp);
                if (event == null) {
                    throw isGivenUp.getAsBoolean() ? givenUp() : call.silent();
                }
                if (event.hasGranted()) {
                    call.isAnswered();
                    return Messages.grant(event.getGranted(), ref.leaseKey(), sent, event.getWaited(), null);
                }
            }
        }
    }

    @Override
    public List<Grant> acquireAll(List<LeaseScope> scopes, String leaseKey, Terms terms, long until, BooleanSupplier isGivenUp) {
        try (var call = new Call<AcquireAllRequest, AcquireAllResponse>(pick(), LeaseServiceGrpc.getAcquireAllMethod(), OF_SEVERAL)) {
            long sent = Transport.now();
            call.ask(Messages.acquireAll(scopes, leaseKey, terms, until));
            long limit = until >= NEVER - patience ? NEVER : Math.max(sent, until) + patience;
            AcquireAllResponse answer = call.next(limit, isGivenUp);
            if (answer == null) {
                throw isGivenUp.getAsBoolean() ? givenUp() : call.silent();
            }
            call.isAnswered();
            Messages.check(Collections.nCopies(scopes.size(), leaseKey), answer.getLeasesList().stream().map(each -> each.getLeaseKey()).toList());
            return answer.getLeasesList().stream().map(each -> Messages.grant(each, leaseKey, sent, answer.getWaited(), null)).toList();
        }
    }

    @Override
    public Claimed claim(String schedule, String leaseKey, Terms terms, BooleanSupplier isGivenUp) {
        for (; !isGivenUp.getAsBoolean(); pause()) {
            try (var call = new Call<ClaimTickRequest, ClaimTickResponse>(pick(), ScheduleServiceGrpc.getClaimTickMethod(),
                    new Errors(new Ref(schedule, "", leaseKey)))) {
                long sent = Transport.now();
                call.ask(Messages.claim(schedule, leaseKey, terms, CLAIM_WAIT));
                ClaimTickResponse answer = call.next(sent + CLAIM_WAIT + patience, isGivenUp);
                if (answer == null) {
                    throw isGivenUp.getAsBoolean() ? givenUp() : call.silent();
                }
                call.isAnswered();
                if (answer.hasLease()) {
                    return Messages.claimed(answer, leaseKey, sent);
                }
            }
        }
        throw givenUp();
    }

    /** Before a server is asked again that may not wait. */
    private static void pause() {
        LockSupport.parkNanos(CLAIM_PAUSE);
    }

    @Override
    public boolean waitsForAll() {
        return true;
    }

    @Override
    public Grant extend(Ref ref, Terms terms, long token) {
        try (var call = new Call<AcquireRequest, AcquireResponse>(pick(), LeaseServiceGrpc.getAcquireMethod(), new Errors(ref))) {
            long sent = Transport.now();
            AcquireResponse answer = call.ask(Messages.acquire(ref, terms, sent)).answer(patience);
            if (answer.getLease().getToken() != token) { // it had ended, so long ago that the scope has forgotten it
                undo(ref);
                return null;
            }
            return Messages.grant(answer.getLease(), ref.leaseKey(), sent, answer.getWaited(), null);
        } catch (LeaseException.Held e) {
            return null;
        } catch (LeaseException.Denied e) {
            if (e.reason().equals("LEASE_ENDED")) {
                return null;
            }
            throw e;
        }
    }

    @Override
    public Grant downgrade(Ref ref, int units) {
        try (var call = new Call<DowngradeRequest, DowngradeResponse>(pick(), LeaseServiceGrpc.getDowngradeMethod(), new Errors(ref))) {
            long sent = Transport.now();
            DowngradeResponse answer = call.ask(DowngradeRequest.newBuilder().setLease(Messages.ref(ref)).setUnits(units).build()).answer(patience);
            return Messages.grant(answer.getLease(), ref.leaseKey(), sent, answer.getWaited(), null);
        }
    }

    @Override
    public List<Beat> heartbeat(List<Ref> refs, long limit) {
        HeartbeatRequest request = HeartbeatRequest.newBuilder().addAllLeases(refs.stream().map(Messages::ref).toList()).build();
        try (var call = new Call<HeartbeatRequest, HeartbeatResponse>(pick(), LeaseServiceGrpc.getHeartbeatMethod(), new Errors(refs.get(0)))) {
            HeartbeatResponse answer = call.ask(request).answer(limit);
            Messages.check(refs.stream().map(Ref::leaseKey).toList(), answer.getResultsList().stream().map(HeartbeatResult::getLeaseKey).toList());
            return answer.getResultsList().stream().map(RpcTransport::beat).toList();
        }
    }

    private static Beat beat(HeartbeatResult result) {
        if (result.getOutcome() == Outcome.OUTCOME_OK) {
            return new Beat(Messages.remaining(result.getRemaining()), result.getDeadlineIsFinal() ? 0 : NEVER, null, null,
                    result.hasAsked() ? Messages.handOver(result.getAsked(), "", 0) : null);
        }
        boolean isLost = result.getOutcome() == Outcome.OUTCOME_LOST;
        return new Beat(0, 0, isLost ? Messages.reason(result.getEndReason()) : null, isLost ? null : result.getMessage(), null);
    }

    @Override
    public List<Answer> release(List<Ending> endings) {
        ReleaseRequest request = ReleaseRequest.newBuilder().addAllItems(endings.stream().map(Messages::item).toList()).build();
        try (var call = new Call<ReleaseRequest, ReleaseResponse>(pick(), LeaseServiceGrpc.getReleaseMethod(), new Errors(endings.get(0).ref()))) {
            ReleaseResponse answer = call.ask(request).answer(patience);
            Messages.check(endings.stream().map(each -> each.ref().leaseKey()).toList(), answer.getResultsList().stream().map(each -> each.getLeaseKey()).toList());
            return answer.getResultsList().stream().map(Messages::answer).toList();
        } catch (RuntimeException e) {
            return IntStream.range(0, endings.size()).mapToObj(unused -> new Answer(null, e)).toList();
        }
    }

    @Override
    public List<Answer> undo(List<Ref> refs) {
        return release(refs.stream().map(each -> new Ending(each, null, UNHEARD)).toList());
    }

    @Override
    public Explanation explain(String namespace, String key) {
        try (var call = new Call<GetLeaseRequest, GetLeaseResponse>(pick(), LeaseServiceGrpc.getGetLeaseMethod(), new Errors(new Ref(namespace, key, "")))) {
            return Messages.explanation(call.ask(GetLeaseRequest.newBuilder().setScope(Messages.scope(namespace, key)).build()).answer(patience));
        } catch (LeaseException.Lost notHeld) {
            return Messages.explanation(GetLeaseResponse.getDefaultInstance());
        }
    }

    @Override
    public List<HandOver> askHandOver(String namespace, String key, String reason, String owner) {
        AskHandOverRequest.Builder request = AskHandOverRequest.newBuilder().setScope(Messages.scope(namespace, key)).setReason(reason);
        if (owner != null) {
            request.setOwner(owner);
        }
        try (var call = new Call<AskHandOverRequest, AskHandOverResponse>(pick(), LeaseServiceGrpc.getAskHandOverMethod(),
                new Errors(new Ref(namespace, key, "")))) {
            return call.ask(request.build()).answer(patience).getHoldersList().stream()
                    .map(each -> Messages.handOver(each.getAsked(), each.getOwner(), each.getToken())).toList();
        } catch (LeaseException.Lost notHeld) {
            return List.of();
        }
    }

    @Override
    public boolean refuseHandOver(Ref ref, String words) {
        RefuseHandOverRequest request = RefuseHandOverRequest.newBuilder().setLease(Messages.ref(ref)).setReason(words).build();
        try (var call = new Call<RefuseHandOverRequest, RefuseHandOverResponse>(pick(), LeaseServiceGrpc.getRefuseHandOverMethod(), new Errors(ref))) {
            call.ask(request).answer(patience);
            return true;
        } catch (LeaseException.Lost ended) {
            return false;
        } catch (LeaseException.Denied e) {
            if (e.reason().equals("NOT_ASKED")) {
                return false;
            }
            throw e;
        }
    }

    @Override
    public Events watch(String namespace, String key, boolean withChildren) {
        WatchLeasesRequest.Builder request = WatchLeasesRequest.newBuilder().setIncludeInitial(true).setAlive(true).setKey(key)
                .setIncludeChildren(withChildren);
        if (!namespace.isEmpty()) {
            request.addAllNamespace(List.of(namespace.split("\\.")));
        }
        var call = new Call<WatchLeasesRequest, leasehold.v1.LeaseEvent>(pick(), LeaseServiceGrpc.getWatchLeasesMethod(), OF_SEVERAL).ask(request.build());
        return new Events() {
            private long limit = patience;

            @Override
            public LeaseEvent next(BooleanSupplier isGivenUp) {
                while (true) {
                    leasehold.v1.LeaseEvent event = call.next(Transport.now() + limit, isGivenUp);
                    if (event == null) {
                        if (isGivenUp.getAsBoolean()) {
                            return null;
                        }
                        throw call.silent();
                    }
                    limit = 3 * SILENCE;
                    LeaseEvent told = Messages.event(event);
                    if (told != null) {
                        return told;
                    }
                }
            }

            @Override
            public void close() {
                call.close();
            }
        };
    }

    @Override
    public void abort() {
        isClosed = true;
        servers.forEach(each -> each.channel().shutdownNow());
    }

    @Override
    public void close() {
        abort();
        try {
            for (Server each : servers) {
                each.channel().awaitTermination(1, TimeUnit.SECONDS);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
