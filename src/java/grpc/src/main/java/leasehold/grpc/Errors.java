package leasehold.grpc;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.protobuf.StatusProto;
import java.time.Duration;
import java.util.Map;
import leasehold.LeaseException;
import leasehold.Retry;
import leasehold.Transport;
import leasehold.v1.Contention;
import leasehold.v1.Lease;
import leasehold.v1.Liveness;

/**
 * Makes exceptions of this package of gRPC's, by the reason in their details.
 *
 * @param ref what was asked; null: several
 */
record Errors(Transport.Ref ref) {
    RuntimeException of(Status status, Metadata trailers, boolean isSent) {
        ErrorInfo info = ErrorInfo.getDefaultInstance();
        Contention contention = Contention.getDefaultInstance();
        Duration after = Duration.ZERO;
        String message = status.getDescription() == null ? status.getCode().name() : status.getDescription();
        try {
            for (Any detail : StatusProto.fromStatusAndTrailers(status, trailers).getDetailsList()) {
                if (detail.is(ErrorInfo.class)) {
                    info = detail.unpack(ErrorInfo.class);
                } else if (detail.is(Contention.class)) {
                    contention = detail.unpack(Contention.class);
                } else if (detail.is(RetryInfo.class)) {
                    var delay = detail.unpack(RetryInfo.class).getRetryDelay();
                    after = Duration.ofSeconds(delay.getSeconds(), delay.getNanos());
                }
            }
        } catch (InvalidProtocolBufferException e) { // not one of a daemon's
            message += " (its details cannot be read: " + e.getMessage() + ")";
        }
        Map<String, String> facts = info.getMetadataMap();
        switch (info.getReason()) {
            case "LEASE_HELD", "WAIT_TIMEOUT":
                return held(contention, message);
            case "NOT_HELD":
                return new LeaseException.Lost(namespace(facts), key(facts), LeaseException.Reason.UNKNOWN, message);
            case "INVALID_ARGUMENT", "MESSAGE_TOO_LARGE":
                return new LeaseException.InvalidArgument(message, facts.getOrDefault("field", ""), facts.getOrDefault("limit", ""), null);
            case "NAMESPACE_FROZEN", "HOOK_REJECTED", "LEASE_ENDED", "QUOTA_EXCEEDED", "UNAUTHENTICATED", "ACCESS_DENIED", "NOT_ASKED":
                return new LeaseException.Denied(info.getReason(), message, null);
            default:
                break;
        }
        for (Retry.Reason each : Retry.Reason.values()) {
            if (each.isUnsent() && each.name().equals(info.getReason())) {
                return new LeaseException.Unavailable(message, null, each, after);
            }
        }
        if (!after.isZero()) {
            return new LeaseException.Unavailable(message, null, Retry.Reason.RETRY_INFO, after);
        }
        switch (status.getCode()) {
            case UNAUTHENTICATED, PERMISSION_DENIED, UNIMPLEMENTED, FAILED_PRECONDITION:
                return new LeaseException.Denied(status.getCode().name(), message, null);
            default:
                return new LeaseException.Unavailable(words(message, status.getCause()), status.getCause(), reason(status.getCode(), isSent));
        }
    }

    /** With the cause of the cause: that is what says what is wrong with a certificate. */
    private static String words(String message, Throwable cause) {
        StringBuilder words = new StringBuilder(message);
        for (Throwable each = cause; each != null; each = each.getCause()) {
            words.append(": ").append(each.getMessage());
        }
        return words.toString();
    }

    private static Retry.Reason reason(Status.Code code, boolean isSent) {
        if (!isSent) {
            return Retry.Reason.SOCKET_NOT_AVAILABLE;
        }
        return code == Status.Code.UNAVAILABLE || code == Status.Code.CANCELLED || code == Status.Code.DEADLINE_EXCEEDED
                ? Retry.Reason.SOCKET_CLOSED_WHILE_IN_FLIGHT : Retry.Reason.UNKNOWN;
    }

    private String namespace(Map<String, String> facts) {
        return ref == null ? facts.getOrDefault("namespace", "") : ref.namespace();
    }

    private String key(Map<String, String> facts) {
        return ref == null ? facts.getOrDefault("key", "") : ref.key();
    }

    private static LeaseException.Held held(Contention contention, String message) {
        Integer free = contention.hasUnitsFree() ? contention.getUnitsFree().getValue() : null;
        if (!contention.hasHolder()) {
            return new LeaseException.Held(message, null, contention.getWaitersAhead(), contention.getHolderCount(), free, null, null, null);
        }
        Lease holder = contention.getHolder();
        boolean isAlive = contention.getLiveness() == Liveness.LIVENESS_ALIVE || contention.getLiveness() == Liveness.LIVENESS_OVERDUE;
        return new LeaseException.Held(message, holder.getOwner(), contention.getWaitersAhead(), contention.getHolderCount(), free, isAlive,
                Messages.silent(holder), Messages.since(holder, holder.getAcquiredAt()));
    }
}
