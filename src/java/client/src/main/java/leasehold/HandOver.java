package leasehold;

import java.time.Duration;
import java.time.Instant;

/**
 * A request to a holder to give its lease back. The holder releases, refuses in its words, or does not answer: nothing ends the lease for it. A request
 * ends with the holder's lease.
 *
 * @param askedAt when it was asked last
 * @param askedBy the asker, in its own words
 * @param principal the asker, as proved
 * @param reason in the asker's words, at most 1024 bytes
 * @param answerBy as the policy says, 30 s after askedAt by default
 * @param answerIn what was left when the server answered; zero: the holder has not answered in time
 * @param refusal the holder's words; empty: it has not refused
 * @param owner of the lease, as {@link LeaseClient#askHandOver} tells; else empty
 * @param token of the lease, likewise; 0 where the role may not see it
 */
public record HandOver(Instant askedAt, String askedBy, String principal, String reason, Instant answerBy, Duration answerIn, String refusal, String owner,
        long token) {
}
