package leasehold;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BiConsumer;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.Supplier;

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
    private static final int MOST_SCOPES = 100; // of one acquireAll
    private static final AtomicInteger CLIENTS = new AtomicInteger();

    /** Guards what is said to be guarded by it in Lease and Renewer. */
    final Object lock = new Object();
    final Transport transport;
    final long patience;
    final String name = "leasehold-" + CLIENTS.incrementAndGet();
    final Releases releases = new Releases(this);
    private final GivenUp givenUp = new GivenUp(this);
    private final Renewer renewer = new Renewer(this);
    final Retry.Strategy strategy;
    final BiConsumer<Retry, Optional<Duration>> retryLog;
    final Telemetry telemetry;
    private final long flush;
    private final ThreadPoolExecutor pool = new ThreadPoolExecutor(0, Integer.MAX_VALUE, 10, TimeUnit.SECONDS, new SynchronousQueue<>(),
            task -> thread(task, "work"));
    private volatile boolean isClosed;

    private LeaseClient(Builder builder) {
        patience = Clock.nanos(builder.patience);
        flush = Clock.nanos(builder.flush);
        strategy = builder.strategy;
        retryLog = builder.retryLog;
        telemetry = builder.telemetry;
        transport = builder.factory.open(builder.patience, telemetry);
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
        return new Builder(Objects.requireNonNull(url, "url"), null);
    }

    /**
     * A client of daemons, with options: {@code LeaseClient.builder(Daemons.at("127.0.0.1:7420"))}, of leasehold-grpc.
     *
     * @param factory connects it
     * @return a builder
     */
    public static Builder builder(Transport.Factory factory) {
        return new Builder(null, Objects.requireNonNull(factory, "factory"));
    }

    /** The options of a client. */
    public static final class Builder {
        private final String url; // null: of daemons
        private final Transport.Factory factory;
        private final Properties properties = new Properties();
        private Duration patience = Duration.ofSeconds(5);
        private Duration poll = Duration.ofSeconds(5);
        private Duration flush = Duration.ofSeconds(5);
        private Retry.Strategy strategy = Retry.BEST_EFFORT;
        private BiConsumer<Retry, Optional<Duration>> retryLog = (retry, delay) -> { };
        private Telemetry telemetry = Silent.ONE;

        private Builder(String url, Transport.Factory factory) {
            this.url = url;
            this.factory = factory != null ? factory : (each, unused) -> new Database(url, properties, Clock.nanos(each), Clock.nanos(poll));
        }

        /**
         * A property of pgjdbc for each connection: user, password, sslmode and so on. Those for timeouts and prepared statements
         * are the client's.
         *
         * @param name the property
         * @param value its value
         * @return this
         * @throws IllegalStateException it is a client of daemons
         */
        public Builder property(String name, String value) {
            if (url == null) {
                throw new IllegalStateException("a client of daemons has no properties of pgjdbc: " + name);
            }
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

        /**
         * How long {@link LeaseClient#close} sends what {@link Lease#tryRelease} left. What is not sent by then ends by its deadline.
         *
         * @param value more than zero; 5 s by default
         * @return this
         */
        public Builder flushTimeout(Duration value) {
            flush = positive("flush_timeout", value);
            return this;
        }

        /**
         * Has a strategy decide about retries, within each request's time. Renewals go on whatever it says.
         *
         * @param value the strategy; {@link Retry#BEST_EFFORT} by default
         * @return this
         */
        public Builder strategy(Retry.Strategy value) {
            strategy = Objects.requireNonNull(value, "strategy");
            return this;
        }

        /**
         * Tells of each retry and each refusal.
         *
         * @param value gets the request, and the delay before the next attempt, which is empty where none follows
         * @return this
         */
        public Builder retryLog(BiConsumer<Retry, Optional<Duration>> value) {
            retryLog = Objects.requireNonNull(value, "retryLog");
            return this;
        }

        /**
         * Tells of each acquisition and lease, as leasehold-opentelemetry does.
         *
         * @param value is told
         * @return this
         */
        public Builder telemetry(Telemetry value) {
            telemetry = Objects.requireNonNull(value, "telemetry");
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
     * Declares the leases of a namespace, once: {@code static final Declared DEPLOY = CLIENT.declare("deploy")}. It asks nobody.
     *
     * @param namespace 1 to 16 segments of 1 to 63 bytes with dots between: payments.invoices
     * @return what makes requests for its keys
     * @throws LeaseException.InvalidArgument the namespace is out of bounds
     */
    public Declared declare(String namespace) {
        return declare(namespace, request -> { });
    }

    /**
     * The same, with options: {@code CLIENT.declare("deploy", request -> request.duration(Duration.ofMinutes(1)))}.
     *
     * @param namespace 1 to 16 segments of 1 to 63 bytes with dots between: payments.invoices
     * @param options is called with each request
     * @return what makes requests for its keys
     * @throws LeaseException.InvalidArgument the namespace, or an option, is out of bounds
     */
    public Declared declare(String namespace, Consumer<LeaseRequest> options) {
        return new Declared(this, namespace, options);
    }

    /**
     * Tells who holds a name, whether it is alive, who waits, and what to do.
     *
     * @param namespace 1 to 16 segments of 1 to 63 bytes with dots between
     * @param key 1 to 1,024 bytes
     * @return the answer, also where nobody has ever held it
     * @throws LeaseException.InvalidArgument an argument is out of bounds
     * @throws LeaseException.Denied the database refuses
     * @throws LeaseException.Unavailable the database did not answer
     */
    public Explanation explain(String namespace, String key) {
        return transport.explain(Bounds.namespace(namespace), Bounds.key(key));
    }

    /**
     * Asks the holders of a name to hand over. It needs the right admin.
     *
     * @param namespace the namespace
     * @param key the key
     * @param reason why, for the holders: at most 1024 bytes
     * @return a request for each holder, with the words of one that has refused; that is asked anew once its time to answer has passed. None: nobody holds it
     * @throws LeaseException.InvalidArgument an argument is out of bounds
     * @throws LeaseException.Denied the server refuses
     * @throws LeaseException.Unavailable the server did not answer; it may have been done, and may be repeated
     */
    public List<HandOver> askHandOver(String namespace, String key, String reason) {
        LeaseRequest request = lease(namespace, key);
        String words = Bounds.reason(reason, 0);
        return answered(request, "AskHandOver", () -> transport.askHandOver(namespace, key, words, request.owner));
    }

    /** Repeats what may be repeated until it is answered, for as long as the client's patience lasts. */
    <T> T answered(LeaseRequest request, String verb, Supplier<T> attempt) {
        Retrying retrying = new Retrying(this, request, verb);
        for (long until = Clock.in(Duration.ofNanos(patience));;) {
            try {
                return attempt.get();
            } catch (LeaseException.Unavailable e) {
                if (!retrying.again(e, until, () -> isClosed)) {
                    throw isClosed ? closed() : e;
                }
            }
        }
    }

    /**
     * Tells what happens to leases. A client of daemons alone has it.
     *
     * @param namespace of the leases, with the namespaces below it; empty: all
     * @return what is read event by event; it asks when it is first read
     * @throws LeaseException.InvalidArgument the namespace is out of bounds
     */
    public LeaseWatch watch(String namespace) {
        return new LeaseWatch(this, namespace.isEmpty() ? namespace : Bounds.namespace(namespace), "", true);
    }

    /**
     * Tells what happens to the leases of one name.
     *
     * @param namespace of the name
     * @param key of the name
     * @return what is read event by event; it asks when it is first read
     * @throws LeaseException.InvalidArgument an argument is out of bounds
     */
    public LeaseWatch watch(String namespace, String key) {
        return new LeaseWatch(this, Bounds.namespace(namespace), Bounds.key(key), false);
    }

    boolean isClosed() {
        return isClosed;
    }

    /** What has become of a lease after a COMMIT that nobody answered. */
    Transport.Beat settle(Transport.Ref ref) {
        for (long until = Clock.now() + patience; Clock.now() < until && !isClosed; Clock.pause(50)) {
            try {
                Transport.Beat beat = transport.heartbeat(List.of(ref), Math.min(patience, 1_000_000_000)).get(0);
                if (beat.isOk() || beat.lost() != null) {
                    return beat;
                }
            } catch (LeaseException e) {
                continue;
            }
        }
        return Transport.Beat.lost(LeaseException.Reason.UNKNOWN);
    }

    /**
     * Acquires 1 to 100 names in one step: all of them, or none. Over gRPC it may wait; over JDBC it does not.
     *
     * @param scopes the names, each once, in any order
     * @param options of all: duration, owner, labels
     * @return the leases, which are held together
     * @throws LeaseException.Held another holds one of them: the exception is about the first
     * @throws LeaseException.InvalidArgument an argument is out of bounds, or an option is for single leases: shared, atLeast and so on
     * @throws LeaseException as {@link LeaseRequest#acquire} does
     * @throws InterruptedException the thread was interrupted; what was granted meanwhile is released
     */
    public Leases acquireAll(List<LeaseScope> scopes, Consumer<LeaseRequest> options) throws InterruptedException {
        List<LeaseScope> all = List.copyOf(scopes);
        if (all.isEmpty() || all.size() > MOST_SCOPES) {
            throw new LeaseException.InvalidArgument("scopes", "1 to " + MOST_SCOPES + "; it is " + all.size(), null);
        }
        LeaseRequest request = lease(all.get(0).namespace(), all.get(0).key());
        options.accept(request);
        request.checkAll(transport.waitsForAll());
        return acquire("AcquireAll", request, leaseKey -> all.stream().map(each -> new Transport.Ref(each.namespace(), each.key(), leaseKey, request.listener != null)).toList(),
                (refs, until, isGivenUp) -> transport.acquireAll(all, refs.get(0).leaseKey(), request.terms(), until, isGivenUp), leases -> new Leases(this, leases));
    }

    /**
     * The same, with the default options.
     *
     * @param scopes the names, each once, in any order
     * @return the leases, which are held together
     * @throws LeaseException as {@link LeaseRequest#acquire} does
     * @throws InterruptedException the thread was interrupted; what was granted meanwhile is released
     */
    public Leases acquireAll(List<LeaseScope> scopes) throws InterruptedException {
        return acquireAll(scopes, request -> { });
    }

    /**
     * Works for a schedule, in this thread, until it is interrupted: waits for the next tick that may run, claims it, runs work, and releases the tick's lease
     * with the outcome, over and over. When the work throws, or its lease is lost, the tick has failed, which is logged, and is claimed again, here or
     * elsewhere, as often as the schedule says. What is no Exception, and an InterruptedException of the work's, end the loop as well. Any number of
     * threads and processes may work for one schedule. It repeats what is unavailable.
     *
     * @param schedule its name
     * @param options of each tick: duration, owner, labels, tell, retries
     * @param work for each tick
     * @throws LeaseException.InvalidArgument no schedule has this name, or an option is not for ticks
     * @throws LeaseException.Denied the database refuses
     * @throws InterruptedException the thread was interrupted
     * @throws IllegalStateException the client was closed
     */
    public void ticks(String schedule, Consumer<LeaseRequest> options, TickWork work) throws InterruptedException {
        LeaseRequest request = lease(schedule, "tick");
        options.accept(request);
        request.checkTicks();
        request.waitForever();
        while (true) {
            if (Thread.interrupted()) {
                throw new InterruptedException();
            }
            run(claim(request), work);
        }
    }

    /**
     * The same, with the default options.
     *
     * @param schedule its name
     * @param work for each tick
     * @throws LeaseException as above
     * @throws InterruptedException the thread was interrupted
     */
    public void ticks(String schedule, TickWork work) throws InterruptedException {
        ticks(schedule, request -> { }, work);
    }

    private Tick claim(LeaseRequest request) throws InterruptedException {
        AtomicReference<Transport.Claimed> claimed = new AtomicReference<>();
        // The key comes with the answer. What is claimed unheard is left to expire: nobody knows which tick it is.
        return acquire("ClaimTick", request, leaseKey -> new ArrayList<>(List.of(new Transport.Ref(request.namespace, "", leaseKey))),
                (refs, until, isGivenUp) -> {
                    String leaseKey = refs.get(0).leaseKey();
                    claimed.set(transport.claim(request.namespace, leaseKey, request.terms(), isGivenUp));
                    refs.set(0, new Transport.Ref(request.namespace, claimed.get().key(), leaseKey, request.listener != null));
                    return List.of(claimed.get().grant());
                }, leases -> new Tick(leases.get(0), claimed.get().at(), claimed.get().attempt()));
    }

    private void run(Tick tick, TickWork work) throws InterruptedException {
        List<Lease> lease = List.of(tick.lease());
        try {
            Interrupter.run(this, lease, () -> work.run(tick), json -> json);
        } catch (InterruptedException e) {
            throw e;
        } catch (Exception e) {
            System.getLogger("leasehold").log(System.Logger.Level.WARNING,
                    "the tick " + LeaseException.scopeName(tick.lease().namespace(), tick.lease().key()) + " has failed", e);
            if (tick.lease().isHeld()) { // its result is none
                Interrupter.quietly(() -> Lease.release(this, lease, null, Interrupter.words(e)));
            }
        }
    }

    /**
     * Ends all threads and connections. It sends what {@link Lease#tryRelease} left, for at most the flush time-out. Leases that are still held are lost with the reason CLOSED: they are renewed no more, and end by
     * their deadlines.
     */
    @Override
    public void close() {
        Thread renewal;
        synchronized (lock) {
            isClosed = true;
            renewal = renewer.close();
        }
        boolean isInterrupted = !releases.flush(flush);
        pool.shutdown();
        // Acquires that were given up end what they began, if the database answers.
        isInterrupted |= !endsWithin(1000);
        givenUp.end();
        transport.abort();
        isInterrupted |= !endsWithin(Clock.millis(2 * patience));
        transport.close();
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

    private interface Attempt {
        List<Transport.Grant> run(List<Transport.Ref> refs, long until, BooleanSupplier isGivenUp);
    }

    Lease acquire(LeaseRequest request) throws InterruptedException {
        return acquire("Acquire", request, leaseKey -> List.of(new Transport.Ref(request.namespace, request.key, leaseKey, request.listener != null)),
                (refs, until, isGivenUp) -> List.of(transport.acquire(refs.get(0), request.terms(), until, isGivenUp)), leases -> leases.get(0));
    }

    private <T> T acquire(String verb, LeaseRequest request, Function<String, List<Transport.Ref>> names, Attempt attempt, Function<List<Lease>, T> result)
            throws InterruptedException {
        // Of a tick it begins with the claim: the wait may last for days.
        Telemetry.Acquisition told = verb.equals("ClaimTick") ? null : telemetry.acquire(request.namespace, request.key, request.mode());
        try {
            return acquire(verb, told, request, names, attempt, result);
        } catch (InterruptedException | RuntimeException | Error e) {
            if (told != null) {
                told.refused(e);
            }
            throw e;
        }
    }

    private <T> T acquire(String verb, Telemetry.Acquisition told, LeaseRequest request, Function<String, List<Transport.Ref>> names, Attempt attempt,
            Function<List<Lease>, T> result) throws InterruptedException {
        CompletableFuture<T> answer = new CompletableFuture<>();
        Retrying retrying = new Retrying(this, request, verb);
        // In a thread of its own, which outlives a caller who gives up: JDBC cannot be interrupted.
        if (isClosed || !execute(telemetry.here(() -> acquire(retrying, told, request, names, attempt, result, answer)))) {
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

    private <T> void acquire(Retrying retrying, Telemetry.Acquisition told, LeaseRequest request, Function<String, List<Transport.Ref>> names, Attempt attempt,
            Function<List<Lease>, T> result, CompletableFuture<T> answer) {
        BooleanSupplier isGivenUp = () -> isClosed || answer.isDone();
        List<Transport.Ref> refs = names.apply(UUID.randomUUID().toString());
        refs.forEach(each -> releases.await(each, patience, isGivenUp));
        long until = request.whileAlive ? Clock.NEVER : Clock.in(request.wait);
        long end = until == Clock.NEVER ? until : until + patience;
        boolean isRepeated = false; // a request may be on its way yet
        while (!isGivenUp.getAsBoolean()) {
            try {
                List<Transport.Ref> asked = refs;
                Supplier<List<Transport.Grant>> work = () -> attempt.run(asked, until, isGivenUp);
                granted(told, request, refs, told == null ? work.get() : told.during(work), result, answer);
                return;
            } catch (LeaseException.Unavailable e) {
                // The same lease key makes the repetition the same acquisition, with its old place in the queue.
                isRepeated = true;
                if (!isRepeated(retrying, e, end, isGivenUp, answer)) {
                    break;
                }
            } catch (LeaseException.Held e) {
                boolean isFinal = !request.wait.isZero() || request.whileAlive;
                if (!isRepeated(retrying, e, isFinal ? 0 : end, isGivenUp, answer)) {
                    break;
                }
            } catch (LeaseException.Denied e) {
                if (!isRepeated || !e.reason().equals("LEASE_ENDED")) {
                    answer.completeExceptionally(e);
                    break;
                }
                isRepeated = false; // granted unheard, and over; of several perhaps one
                if (refs.size() > 1) { // what is left of them would be in the way
                    givenUp.add(refs, request.duration).completeOnTimeout(null, patience, TimeUnit.NANOSECONDS).join();
                }
                refs = names.apply(UUID.randomUUID().toString());
            } catch (RuntimeException | Error e) {
                answer.completeExceptionally(isClosed ? closed() : e);
                break;
            }
        }
        answer.completeExceptionally(closed());
        if (isRepeated) {
            givenUp.add(refs, request.duration);
        }
    }

    /** Or the answer is the attempt's exception, or the strategy's. */
    private boolean isRepeated(Retrying retrying, LeaseException e, long end, BooleanSupplier isGivenUp, CompletableFuture<?> answer) {
        try {
            if (retrying.again(e, end, isGivenUp)) {
                return true;
            }
            answer.completeExceptionally(isClosed ? closed() : e);
        } catch (RuntimeException | Error thrown) {
            answer.completeExceptionally(thrown);
        }
        return false;
    }

    private <T> void granted(Telemetry.Acquisition told, LeaseRequest request, List<Transport.Ref> refs, List<Transport.Grant> grants,
            Function<List<Lease>, T> result, CompletableFuture<T> answer) {
        List<Lease> leases = new ArrayList<>();
        for (int i = 0; i < refs.size(); i++) {
            leases.add(new Lease(this, request, refs.get(i), grants.get(i)));
        }
        synchronized (lock) {
            // Under the lock: nothing is lost unheard between the two.
            if (!isClosed && answer.complete(result.apply(leases))) {
                leases.forEach(each -> each.begin(told));
                leases.forEach(renewer::add);
                return;
            }
        }
        answer.completeExceptionally(closed());
        givenUp.add(refs, request.duration);
        leases.forEach(Lease::endStream);
    }

    /** Renews the lease from now on. */
    void hold(Lease lease, Telemetry.Acquisition told) {
        synchronized (lock) {
            if (isClosed) {
                lease.lose(LeaseException.Reason.CLOSED, null);
                throw closed();
            }
            lease.begin(told);
            renewer.add(lease);
        }
    }

    void undoLater(LeaseRequest request, Transport.Ref ref) {
        givenUp.add(List.of(ref), request.duration);
    }
}
