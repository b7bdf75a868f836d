package leasehold.grpc;

import com.google.protobuf.Duration;
import com.google.protobuf.Timestamp;
import java.time.Instant;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import leasehold.Explanation;
import leasehold.HandOver;
import leasehold.LeaseEvent;
import leasehold.LeaseException;
import leasehold.LeaseScope;
import leasehold.Retry;
import leasehold.Transport;
import leasehold.v1.AcquireAllRequest;
import leasehold.v1.AcquireItem;
import leasehold.v1.AcquireRequest;
import leasehold.v1.ClaimTickRequest;
import leasehold.v1.ClaimTickResponse;
import leasehold.v1.EndReason;
import leasehold.v1.GetLeaseResponse;
import leasehold.v1.Lease;
import leasehold.v1.LeaseRef;
import leasehold.v1.Liveness;
import leasehold.v1.Mode;
import leasehold.v1.Namespace;
import leasehold.v1.ReleaseItem;
import leasehold.v1.ReleaseResult;
import leasehold.v1.Scope;

/** Between the client's types and the messages of leasehold.proto. */
final class Messages {
    private Messages() {
    }

    static Duration duration(java.time.Duration value) {
        return Duration.newBuilder().setSeconds(value.getSeconds()).setNanos(value.getNano()).build();
    }

    static Duration duration(long nanos) {
        return duration(java.time.Duration.ofNanos(Math.max(0, nanos)));
    }

    static long nanos(Duration value) {
        return java.time.Duration.ofSeconds(value.getSeconds(), value.getNanos()).toNanos();
    }

    /** Nanoseconds of an answer, as far as they can be true. */
    private static long atMost(Duration value, long most) {
        return value.getSeconds() < 0 || value.getNanos() < 0 ? 0 : value.getSeconds() < most / 1_000_000_000 ? nanos(value) : most;
    }

    /** How long a lease lasts yet, as far as a clock goes; the lease believes no more than its duration. */
    static long remaining(Duration value) {
        return atMost(value, Long.MAX_VALUE / 4);
    }

    /** Refuses what is about other leases than were asked for. An answer may name none. */
    static void check(List<String> asked, List<String> answered) {
        boolean isRight = asked.size() == answered.size();
        for (int i = 0; isRight && i < asked.size(); i++) {
            isRight = answered.get(i).isEmpty() || answered.get(i).equals(asked.get(i));
        }
        if (!isRight) {
            throw new LeaseException.Unavailable("the server answered for other leases than it was asked for", null, Retry.Reason.UNKNOWN);
        }
    }

    private static Instant instant(Timestamp value) {
        return Instant.ofEpochSecond(value.getSeconds(), value.getNanos());
    }

    static Scope scope(String namespace, String key) {
        return Scope.newBuilder().addAllNamespace(Arrays.asList(namespace.split("\\."))).setKey(key).build();
    }

    static LeaseRef ref(Transport.Ref ref) {
        return LeaseRef.newBuilder().setScope(scope(ref.namespace(), ref.key())).setLeaseKey(ref.leaseKey()).build();
    }

    /** Until then, or for ever. */
    static AcquireRequest acquire(Transport.Ref ref, Transport.Terms terms, long until) {
        AcquireRequest.Builder request = AcquireRequest.newBuilder().setScope(scope(ref.namespace(), ref.key())).setDuration(duration(terms.duration()))
                .setLeaseKey(ref.leaseKey()).putAllLabels(terms.labels()).setPriority(terms.priority());
        if (terms.owner() != null) {
            request.setOwner(terms.owner());
        }
        if (terms.longest().equals(Transport.FOREVER)) {
            request.setWaitForever(true);
        } else if (terms.whileAlive()) {
            request.setWaitWhileAlive(true).setWait(duration(terms.longest()));
        } else {
            request.setWait(duration(until - Transport.now()));
        }
        request.setAskHandOver(terms.asksHandOver() && (request.getWaitForever() || request.getWaitWhileAlive() || nanos(request.getWait()) > 0));
        if (terms.units() > 0) {
            request.setMode(Mode.MODE_SHARED).setUnits(terms.units());
        } else if (!terms.atLeast().isZero()) {
            request.setAtLeast(duration(terms.atLeast()));
        }
        return request.build();
    }

    static AcquireAllRequest acquireAll(List<LeaseScope> scopes, String leaseKey, Transport.Terms terms, long until) {
        AcquireAllRequest.Builder request = AcquireAllRequest.newBuilder().setDuration(duration(terms.duration())).setLeaseKey(leaseKey)
                .putAllLabels(terms.labels());
        if (terms.owner() != null) {
            request.setOwner(terms.owner());
        }
        if (until == Transport.NEVER) {
            request.setWaitForever(true);
        } else {
            request.setWait(duration(until - Transport.now()));
        }
        for (LeaseScope each : scopes) {
            request.addItems(AcquireItem.newBuilder().setScope(scope(each.namespace(), each.key())).setUnits(each.units())
                    .setMode(each.units() > 0 ? Mode.MODE_SHARED : Mode.MODE_EXCLUSIVE));
        }
        return request.build();
    }

    /** What an answer grants, no later than it came. */
    static Transport.Grant grant(Lease lease, String leaseKey, long sent, Duration waited, Transport.Stream stream) {
        check(List.of(leaseKey), List.of(lease.getLeaseKey()));
        long since = sent + atMost(waited, Transport.now() - sent);
        return new Transport.Grant(lease.getToken(), since + remaining(lease.getRemaining()), lease.getUnits(), List.copyOf(lease.getSlotsList()),
                lease.getDeadlineIsFinal(), stream);
    }

    static HandOver handOver(leasehold.v1.HandOver asked, String owner, long token) {
        return new HandOver(instant(asked.getAskedAt()), asked.getAskedBy(), asked.getPrincipal(), asked.getReason(), instant(asked.getAnswerBy()),
                java.time.Duration.ofNanos(nanos(asked.getAnswerIn())), asked.getRefusal(), owner, token);
    }

    static ClaimTickRequest claim(String schedule, String leaseKey, Transport.Terms terms, long wait) {
        ClaimTickRequest.Builder request = ClaimTickRequest.newBuilder().setNamespace(Namespace.newBuilder().addAllSegments(Arrays.asList(schedule.split("\\."))))
                .setWait(duration(wait)).setDuration(duration(terms.duration())).setLeaseKey(leaseKey).putAllLabels(terms.labels());
        if (terms.owner() != null) {
            request.setOwner(terms.owner());
        }
        return request.build();
    }

    static Transport.Claimed claimed(ClaimTickResponse answer, String leaseKey, long sent) {
        return new Transport.Claimed(grant(answer.getLease(), leaseKey, sent, answer.getWaited(), null), answer.getLease().getScope().getKey(), instant(answer.getAt()),
                answer.getAttempt());
    }

    static ReleaseItem item(Transport.Ending ending) {
        ReleaseItem.Builder item = ReleaseItem.newBuilder().setLease(ref(ending.ref()));
        if (ending.failure() != null) {
            return item.setFailure(ending.failure()).build();
        }
        return item.setSuccess(ending.result() == null ? "" : ending.result()).build();
    }

    static Transport.Answer answer(ReleaseResult result) {
        return switch (result.getOutcome()) {
            case OUTCOME_OK -> new Transport.Answer(null, null);
            case OUTCOME_LOST -> new Transport.Answer(reason(result.getEndReason()), null);
            case OUTCOME_DENIED -> new Transport.Answer(null, new LeaseException.Denied("ACCESS_DENIED", result.getMessage(), null));
            case OUTCOME_REJECTED -> new Transport.Answer(null, new LeaseException.Denied("HOOK_REJECTED", result.getMessage(), null));
            case OUTCOME_INVALID -> new Transport.Answer(null, new LeaseException.InvalidArgument(result.getMessage(), "", "", null));
            default -> new Transport.Answer(null, new LeaseException.Unavailable(result.getMessage(), null, leasehold.Retry.Reason.OUTCOME_RETRY));
        };
    }

    static LeaseException.Reason reason(EndReason reason) {
        return switch (reason) {
            case END_REASON_RELEASED -> LeaseException.Reason.RELEASED;
            case END_REASON_FAILED -> LeaseException.Reason.FAILED;
            case END_REASON_EXPIRED -> LeaseException.Reason.EXPIRED;
            case END_REASON_FORCED -> LeaseException.Reason.FORCED;
            case END_REASON_MAX_HOLD -> LeaseException.Reason.MAX_HOLD;
            default -> LeaseException.Reason.UNKNOWN;
        };
    }

    /** Seconds from then to the database's answer. */
    static double since(Lease lease, Timestamp then) {
        Instant now = instant(lease.getDeadline()).minusNanos(nanos(lease.getRemaining()));
        return java.time.Duration.between(instant(then), now).toNanos() / 1e9;
    }

    static double silent(Lease lease) {
        return since(lease, lease.getHeartbeatAt());
    }

    static Explanation explanation(GetLeaseResponse answer) {
        long rests = nanos(answer.getContention().getRests());
        int waiters = answer.getContention().getWaitersAhead();
        Optional<java.time.Duration> rest = rests > 0 ? Optional.of(java.time.Duration.ofNanos(rests)) : Optional.empty();
        if (!answer.hasLease()) {
            Explanation.State state = rests > 0 ? Explanation.State.RESTING : Explanation.State.FREE;
            Optional<Instant> ended = answer.getLast().hasEndedAt() ? Optional.of(instant(answer.getLast().getEndedAt())) : Optional.empty();
            String advice = rests > 0 ? "wait: it rests for another " + rest.orElseThrow() : waiters > 0 ? "join the queue: it is free, but others wait"
                    : "free: acquire it";
            return new Explanation(state, Optional.empty(), "", "", 0, 0, 0, waiters, ended, Optional.empty(), rest, advice);
        }
        Lease lease = answer.getLease();
        java.time.Duration silent = java.time.Duration.ofMillis(Math.round(silent(lease) * 1e3));
        int units = answer.getHoldersList().stream().mapToInt(Lease::getUnits).sum();
        return new Explanation(units > 0 ? Explanation.State.SHARED : Explanation.State.HELD, liveness(lease.getLiveness()), lease.getOwner(),
                lease.getPrincipal(), lease.getToken(), units, answer.getHolderCount(), waiters, Optional.of(instant(lease.getAcquiredAt())),
                Optional.of(silent), rest, advice(lease, silent, units > 0));
    }

    private static Optional<Explanation.Liveness> liveness(Liveness liveness) {
        return switch (liveness) {
            case LIVENESS_ALIVE -> Optional.of(Explanation.Liveness.ALIVE);
            case LIVENESS_SUSPECTED_DEAD -> Optional.of(Explanation.Liveness.SUSPECTED_DEAD);
            case LIVENESS_OVERDUE -> Optional.of(Explanation.Liveness.OVERDUE);
            case LIVENESS_EXPIRED -> Optional.of(Explanation.Liveness.EXPIRED);
            default -> Optional.empty();
        };
    }

    /** Shorter than that of leasehold.explain, which knows the policy. */
    private static String advice(Lease lease, java.time.Duration silent, boolean isShared) {
        return switch (lease.getLiveness()) {
            case LIVENESS_EXPIRED -> "it has expired: wait for the reaper";
            case LIVENESS_SUSPECTED_DEAD -> "look at " + lease.getOwner() + ": silent for " + silent + ", suspected dead";
            case LIVENESS_OVERDUE -> "look at " + lease.getOwner() + ": alive, but it has held this for longer than max_hold";
            default -> isShared ? "acquire it shared: an exclusive lease waits for all of its holders"
                    : "wait: " + lease.getOwner() + " is alive, its last heartbeat was " + silent + " ago";
        };
    }

    /** Null: there is nothing to tell. */
    static LeaseEvent event(leasehold.v1.LeaseEvent event) {
        LeaseEvent.Type type = switch (event.getType()) {
            case TYPE_INITIAL -> LeaseEvent.Type.HELD;
            case TYPE_SYNCED -> LeaseEvent.Type.SYNCED;
            case TYPE_ACQUIRED -> LeaseEvent.Type.ACQUIRED;
            case TYPE_FORCED -> LeaseEvent.Type.FORCED;
            case TYPE_DOWNGRADED -> LeaseEvent.Type.DOWNGRADED;
            case TYPE_RELEASED -> event.getEndReason() == EndReason.END_REASON_FAILED ? LeaseEvent.Type.FAILED : LeaseEvent.Type.RELEASED;
            case TYPE_EXPIRED -> event.getEndReason() == EndReason.END_REASON_MAX_HOLD ? LeaseEvent.Type.MAX_HOLD : LeaseEvent.Type.EXPIRED;
            default -> null;
        };
        Lease lease = event.getLease();
        return type == null ? null : new LeaseEvent(type, String.join(".", lease.getScope().getNamespaceList()), lease.getScope().getKey(), lease.getOwner(),
                lease.getToken(), lease.getUnits(), event.getResult(), event.getReason() + event.getError());
    }
}
