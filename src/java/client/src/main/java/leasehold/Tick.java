package leasehold;

import java.time.Instant;

/**
 * An instant of a schedule that this process has claimed.
 *
 * @param lease of the work: its namespace is the schedule, its key the instant
 * @param at the instant, which the work is for, whenever it runs
 * @param attempt 1 for the first; a tick that failed comes again, as the schedule says
 */
public record Tick(Lease lease, Instant at, int attempt) {
}
