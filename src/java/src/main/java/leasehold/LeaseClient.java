package leasehold;

import java.time.Duration;
import java.util.Objects;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;

/**
 * Leases names in a PostgreSQL database that has the schema leasehold. Make one for a process; any thread may use it.
 *
 * <pre>{@code
 * try (LeaseClient client = LeaseClient.create("jdbc:postgresql://localhost/app?user=app");
 *      Lease lease = client.lease("payments", "inv-42").duration(Duration.ofSeconds(30)).waitFor(Duration.ofSeconds(5)).acquire()) {
 *     System.out.println("token " + lease.token()); // the client renews the lease until the block ends
 * }
 * }</pre>
 *
 * <p>The client makes its own connections: one that renews, one for each acquire or release while it lasts, and at most two of these
 * stay for later. Its threads are daemons: a program that ends without {@link #close} leaves leases that end by their deadlines.
 */
public final class LeaseClient implements AutoCloseable {
    private static final AtomicInteger CLIENTS = new AtomicInteger();

    /** Guards what is said to be guarded by it in Lease and Renewer. */
    final Object lock = new Object();
    final Database database;
    final long patience;
    final String name = "leasehold-" + CLIENTS.incrementAndGet();
    private final Renewer renewer = new Renewer(this);
    private final ThreadPoolExecutor pool = new ThreadPoolExecutor(0, Integer.MAX_VALUE, 10, TimeUnit.SECONDS, new SynchronousQueue<>(),
            task -> thread(task, "work"));
    private volatile boolean isClosed;

    private LeaseClient(Builder builder) {
        patience = Clock.nanos(builder.patience);
        database = new Database(builder.url, builder.properties, patience, Clock.nanos(builder.poll));
    }

    /**
     * A client with the defaults. It connects when it is first used.
     *
     * @param url of pgjdbc: jdbc:postgresql://HOST:PORT/DATABASE?user=NAME
     * @return the client
     */
    public static LeaseClient create(String url) {
        return builder(url).build();
    }

    /**
     * A client with options.
     *
     * @param url of pgjdbc: jdbc:postgresql://HOST:PORT/DATABASE?user=NAME
     * @return a builder
     */
    public static Builder builder(String url) {
        return new Builder(url);
    }

    /** The options of a client. */
    public static final class Builder {
        private final String url;
        private final Properties properties = new Properties();
        private Duration patience = Duration.ofSeconds(5);
        private Duration poll = Duration.ofSeconds(5);

        private Builder(String url) {
            this.url = Objects.requireNonNull(url, "url");
        }

        /**
         * A property of pgjdbc for each connection: user, password, sslmode and so on. Those for timeouts and prepared statements
         * are the client's.
         *
         * @param name the property
         * @param value its value
         * @return this
         */
        public Builder property(String name, String value) {
            properties.setProperty(name, value);
            return this;
        }

        /**
         * How long the database may take to answer a statement, and how long an acquire goes on without any answer after its wait.
         * Renewals have less: a sixth of the duration.
         *
         * @param value more than zero; 5 s by default
         * @return this
         */
        public Builder patience(Duration value) {
            patience = positive("patience", value);
            return this;
        }

        /**
         * How often a waiter looks although no notification has come. Behind a pooler, where none can come, it looks every 0.2 s, or
         * at this interval if it is shorter.
         *
         * @param value more than zero; 5 s by default
         * @return this
         */
        public Builder poll(Duration value) {
            poll = positive("poll", value);
            return this;
        }

        private static Duration positive(String field, Duration value) {
            if (value.isNegative() || value.isZero() || value.compareTo(Duration.ofDays(1)) > 0) {
                throw new LeaseException.InvalidArgument(field, "more than 0, at most 1 day; it is " + value, null);
            }
            return value;
        }

        /**
         * Makes the client.
         *
         * @return the client
         */
        public LeaseClient build() {
            return new LeaseClient(this);
        }
    }

    /**
     * Begins a request for a lease.
     *
     * @param namespace 1 to 16 segments of 1 to 63 bytes with dots between: payments.invoices
     * @param key 1 to 1,024 bytes
     * @return the request, to be followed by options and {@link LeaseRequest#acquire}, call or lead
     */
    public LeaseRequest lease(String namespace, String key) {
        return new LeaseRequest(this, namespace, key);
    }

    /**
     * Ends all threads and connections. Leases that are still held are lost with the reason CLOSED: they are renewed no more, and end by
     * their deadlines.
     */
    @Override
    public void close() {
        Thread renewal;
        synchronized (lock) {
            isClosed = true;
            renewal = renewer.close();
        }
        pool.shutdown();
        // Acquires that were given up end what they began, if the database answers.
        boolean isInterrupted = !endsWithin(1000);
        database.abort();
        isInterrupted |= !endsWithin(Clock.millis(2 * patience));
        database.close();
        try {
            if (renewal != null && renewal != Thread.currentThread()) {
                renewal.join(1000);
            }
        } catch (InterruptedException e) {
            isInterrupted = true;
        }
        if (isInterrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** False: this thread was interrupted. */
    private boolean endsWithin(int millis) {
        try {
            pool.awaitTermination(millis, TimeUnit.MILLISECONDS);
            return true;
        } catch (InterruptedException e) {
            return false;
        }
    }

    Thread thread(Runnable task, String what) {
        Thread thread = new Thread(task, name + " " + what);
        thread.setDaemon(true);
        return thread;
    }

    /** False: the client is closed. */
    boolean execute(Runnable task) {
        try {
            pool.execute(task);
            return true;
        } catch (RejectedExecutionException e) {
            return false;
        }
    }

    void forget(Lease lease) {
        renewer.remove(lease);
    }

    /** Waits under the lock; an interrupt is left for later. */
    void await(BooleanSupplier condition) {
        boolean isInterrupted = false;
        while (!condition.getAsBoolean() && !isClosed) {
            try {
                lock.wait();
            } catch (InterruptedException e) {
                isInterrupted = true;
            }
        }
        if (isInterrupted) {
            Thread.currentThread().interrupt();
        }
    }

    Lease acquire(LeaseRequest request) throws InterruptedException {
        CompletableFuture<Lease> answer = new CompletableFuture<>();
        // In a thread of its own, which outlives a caller who gives up: JDBC cannot be interrupted.
        if (isClosed || !execute(() -> acquire(request, answer))) {
            throw closed();
        }
        try {
            return answer.get();
        } catch (InterruptedException e) {
            if (answer.cancel(false)) {
                throw e;
            }
            Thread.currentThread().interrupt();
            return answer.join();
        } catch (ExecutionException e) {
            if (e.getCause() instanceof RuntimeException cause) {
                throw cause;
            }
            throw new IllegalStateException(e.getCause());
        }
    }

    private static IllegalStateException closed() {
        return new IllegalStateException("the client is closed");
    }

    private void acquire(LeaseRequest request, CompletableFuture<Lease> answer) {
        BooleanSupplier isGivenUp = () -> isClosed || answer.isDone();
        long until = request.whileAlive ? Clock.NEVER : Clock.in(request.wait);
        Database.Ref ref = new Database.Ref(request.namespace, request.key, UUID.randomUUID().toString());
        for (boolean isRepeated = false;;) {
            try {
                if (!isGivenUp.getAsBoolean()) {
                    granted(request, ref, database.acquire(ref, request, until, isGivenUp), answer);
                    return;
                }
            } catch (LeaseException.Unavailable e) {
                // The same lease key makes the repetition the same acquisition, with its old place in the queue.
                if (!isGivenUp.getAsBoolean() && (until == Clock.NEVER || Clock.now() < until + patience)) {
                    isRepeated = true;
                    Clock.pause(100);
                    continue;
                }
                answer.completeExceptionally(isClosed ? closed() : e);
            } catch (LeaseException.Denied e) {
                if (isRepeated && e.reason().equals("LEASE_ENDED")) { // granted unheard, and over
                    isRepeated = false;
                    ref = new Database.Ref(request.namespace, request.key, UUID.randomUUID().toString());
                    continue;
                }
                answer.completeExceptionally(e);
                return;
            } catch (RuntimeException | Error e) {
                answer.completeExceptionally(isClosed ? closed() : e);
                return;
            }
            answer.completeExceptionally(closed());
            giveUp(request, ref);
            return;
        }
    }

    private void granted(LeaseRequest request, Database.Ref ref, Database.Grant grant, CompletableFuture<Lease> answer) {
        Lease lease = new Lease(this, request, ref, grant);
        synchronized (lock) {
            // Under the lock: nothing is lost unheard between the two.
            if (!isClosed && answer.complete(lease)) {
                renewer.add(lease);
                return;
            }
        }
        answer.completeExceptionally(closed());
        giveUp(request, ref);
    }

    /** Renews the lease from now on. */
    void hold(Lease lease) {
        synchronized (lock) {
            if (isClosed) {
                lease.lose(LeaseException.Reason.CLOSED, null);
                throw closed();
            }
            renewer.add(lease);
        }
    }

    void undoLater(LeaseRequest request, Database.Ref ref) {
        execute(() -> giveUp(request, ref));
    }

    /** Sees to it that what was granted unheard is released. */
    private void giveUp(LeaseRequest request, Database.Ref ref) {
        for (long until = Clock.in(request.duration); Clock.now() < until && !pool.isTerminated(); Clock.pause(200)) {
            try {
                database.undo(ref);
                return;
            } catch (LeaseException.Unavailable e) {
                continue;
            } catch (RuntimeException e) { // closed, or refused
                return;
            }
        }
    }
}
