package leasehold;

/** The work for a tick. */
@FunctionalInterface
public interface TickWork {
    /**
     * Does the work. The thread is interrupted when the tick's lease is lost: then it must stop.
     *
     * @param tick the tick, whose lease is held
     * @return JSON of at most 8 KiB that is kept with the tick, or null
     * @throws Exception the tick has failed, with the exception's words
     */
    String run(Tick tick) throws Exception;
}
