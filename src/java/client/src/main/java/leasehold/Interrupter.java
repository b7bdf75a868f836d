package leasehold;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.Future;
import java.util.function.Function;

/** Runs work under what it holds, in this thread, which a loss interrupts. */
final class Interrupter {
    private final Thread worker = Thread.currentThread();
    private boolean isOver;
    private boolean hasInterrupted;

    private Interrupter() {
    }

    interface Work<T, E extends Exception> {
        T run() throws E;
    }

    static <T, E extends Exception> T run(LeaseClient client, List<Lease> leases, Work<T, E> work) throws E {
        return run(client, leases, work, unused -> null);
    }

    /** The same, with what the leases are released with, as JSON. */
    static <T, E extends Exception> T run(LeaseClient client, List<Lease> leases, Work<T, E> work, Function<T, String> json) throws E {
        Interrupter interrupter = new Interrupter();
        leases.forEach(each -> each.onLost(interrupter::interrupt));
        T result;
        try {
            result = work.run();
            if (result instanceof Future<?> more && !more.isDone()) {
                throw new IllegalStateException("the work returned a Future that is not done: it would go on without the lease; wait for it in the work");
            }
        } catch (Throwable trouble) {
            interrupter.end();
            quietly(() -> Lease.release(client, leases, null, words(trouble)));
            LeaseException.Lost lost = Leases.lost(leases); // perhaps the release has found that
            if (lost != null) {
                lost.addSuppressed(trouble);
                throw lost;
            }
            throw trouble;
        }
        interrupter.end();
        Lease.release(client, leases, json.apply(result), null);
        return result;
    }

    static void quietly(Runnable release) {
        try {
            release.run();
        } catch (LeaseException | IllegalStateException e) {
            System.getLogger("leasehold").log(System.Logger.Level.DEBUG, "the lease ends by its deadline", e);
        }
    }

    private synchronized void interrupt(LeaseException.Lost lost) {
        if (!isOver && !hasInterrupted) {
            hasInterrupted = true;
            worker.interrupt();
        }
    }

    private synchronized void end() {
        isOver = true;
        if (hasInterrupted) {
            Thread.interrupted();
        }
    }

    static String words(Throwable trouble) {
        byte[] bytes = trouble.toString().replace("\0", "").getBytes(StandardCharsets.UTF_8);
        String text = new String(bytes, 0, Math.min(bytes.length, 8000), StandardCharsets.UTF_8);
        return bytes.length > 8000 ? text.replaceAll("\uFFFD+$", "") : text;
    }
}
