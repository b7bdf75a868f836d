package leasehold;

import java.time.Duration;
import java.time.Instant;
import java.util.Optional;

/**
 * What a person wants to know of a name. Of several shared holders the oldest is told of.
 *
 * @param state what it is
 * @param liveness of the holder; empty where there is none
 * @param holder the owner's own words; empty where there is none
 * @param principal what the holder has proved
 * @param token 0 where nobody holds it, and where the role may not see it
 * @param units of all shared holders together
 * @param holders how many hold it
 * @param waiters how many wait
 * @param since when it was acquired, or the last lease ended
 * @param silent the time since the holder's last renewal
 * @param rests for how long it is granted to nobody
 * @param advice what to do next
 */
public record Explanation(State state, Optional<Liveness> liveness, String holder, String principal, long token, int units, int holders, int waiters,
        Optional<Instant> since, Optional<Duration> silent, Optional<Duration> rests, String advice) {
    /** What a name is. */
    public enum State {
        /** It can be acquired, unless others wait for it. */
        FREE,
        /** By one. */
        HELD,
        /** By one or several. */
        SHARED,
        /** It is granted to nobody before its minimum hold is over. */
        RESTING
    }

    /** Why somebody should look at a holder. */
    public enum Liveness {
        /** It renews. */
        ALIVE,
        /** It has not renewed for longer than dead_after of the policy. */
        SUSPECTED_DEAD,
        /** It renews, and has held it for longer than max_hold of the policy. */
        OVERDUE,
        /** The reaper or the next acquirer ends it. */
        EXPIRED
    }
}
