package leasehold;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.fail;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import leasehold.grpc.Daemons;

/** A database, direct or behind PgBouncer, and the scope of one test. tests/clients/java/run makes the databases. */
final class Site implements AutoCloseable {
    private static final ConcurrentHashMap<String, Thread> REAPERS = new ConcurrentHashMap<>();
    private static final ConcurrentHashMap<String, Queue<Connection>> IDLE = new ConcurrentHashMap<>(); // by their URL: one for each question costs a process
    private static final HttpClient HTTP = HttpClient.newHttpClient();
    final String on;
    final String key;
    final String url;
    private final String direct; // around the pooler, for the test's own questions
    private final Deque<AutoCloseable> ends = new ArrayDeque<>();
    private final List<LeaseClient> clients = new ArrayList<>();

    Site(String on, String key) {
        this.on = on;
        this.key = key + Reporter.LIBRARIES;
        url = System.getenv(on.equals("pooler") ? "LEASEHOLD_TEST_POOLER" : on.equals("grpc") ? "LEASEHOLD_TEST_DAEMONS"
                : "LEASEHOLD_TEST_SQL" + Reporter.LIBRARIES.replace('-', '_'));
        direct = on.equals("pooler") ? System.getenv("LEASEHOLD_TEST_POOLED") : url;
        if (!on.equals("grpc")) { // daemons reap
            REAPERS.computeIfAbsent(on, unused -> reaper());
        }
    }

    /** What cron does where no daemon is. */
    private Thread reaper() {
        Thread thread = new Thread(() -> {
            while (true) {
                sql("select count(*) from leasehold.reap()");
                sleep(200);
            }
        }, "cron");
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    @Override
    public void close() throws Exception {
        while (!ends.isEmpty()) {
            ends.pop().close();
        }
        for (LeaseClient client : clients) {
            client.close();
            await("the end of the threads of " + client.name, () -> threads(client).isEmpty());
        }
    }

    static List<Thread> threads(LeaseClient client) {
        return Thread.getAllStackTraces().keySet().stream().filter(each -> each.getName().startsWith(client.name + " ")).toList();
    }

    <T extends AutoCloseable> T atEnd(T end) {
        ends.push(end);
        return end;
    }

    LeaseClient client() {
        return client(builder());
    }

    LeaseClient.Builder builder() {
        return builder(on.equals("grpc") ? System.getenv("LEASEHOLD_TEST_DAEMON") : url).patience(seconds(60)); // the first requests of a process that tests everything at once
    }

    /** Of a URL of pgjdbc, or a daemon's address. */
    static LeaseClient.Builder builder(String to) {
        return to.startsWith("jdbc:") ? LeaseClient.builder(to) : LeaseClient.builder(Daemons.at(to));
    }

    LeaseClient client(LeaseClient.Builder builder) {
        LeaseClient client = (on.equals("grpc") ? builder : builder.property("ApplicationName", "java-" + key)).build();
        clients.add(client);
        return client;
    }

    /** What the client's threads say in the log. */
    List<String> log(LeaseClient client) {
        List<String> said = Collections.synchronizedList(new ArrayList<>());
        Logger logger = Logger.getLogger("leasehold");
        Handler handler = new Handler() {
            @Override
            public void publish(LogRecord entry) {
                if (Thread.currentThread().getName().startsWith(client.name + " ")) {
                    said.add(entry.getMessage());
                }
            }

            @Override
            public void flush() {
            }

            @Override
            public void close() {
            }
        };
        logger.addHandler(handler);
        atEnd(() -> logger.removeHandler(handler));
        return said;
    }

    /** A connection of the application's. */
    Connection connection() throws SQLException {
        Connection connection = atEnd(DriverManager.getConnection(url + "&prepareThreshold=0"));
        connection.setAutoCommit(false);
        return connection;
    }

    /** What psql would print, without its decoration. */
    String sql(String statement, Object... with) {
        Queue<Connection> idle = IDLE.computeIfAbsent(direct, unused -> new ConcurrentLinkedQueue<>());
        Connection connection = idle.poll();
        try {
            connection = connection == null ? DriverManager.getConnection(direct) : connection;
            String answer = sql(connection, String.format(statement, with));
            idle.add(connection);
            return answer;
        } catch (SQLException e) {
            quietly(connection);
            throw new IllegalStateException(e);
        }
    }

    private static void quietly(Connection connection) {
        try {
            if (connection != null) {
                connection.close();
            }
        } catch (SQLException e) {
            return; // it is broken
        }
    }

    private static String sql(Connection connection, String statement) throws SQLException {
        try (Statement one = connection.createStatement()) {
            List<String> lines = new ArrayList<>();
            if (one.execute(statement)) {
                for (ResultSet rows = one.getResultSet(); rows.next();) {
                    List<String> values = new ArrayList<>();
                    for (int i = 1; i <= rows.getMetaData().getColumnCount(); i++) {
                        values.add(rows.getString(i) == null ? "" : rows.getString(i));
                    }
                    lines.add(String.join("|", values));
                }
            }
            return String.join("\n", lines);
        }
    }

    /** What tests/clients/control.py answers. */
    static String ask(String what, String json) throws Exception {
        var ask = HttpRequest.newBuilder(URI.create(System.getenv("LEASEHOLD_CONTROL") + "/" + what)).POST(HttpRequest.BodyPublishers.ofString(json)).build();
        HttpResponse<String> answer = HTTP.send(ask, HttpResponse.BodyHandlers.ofString());
        assertEquals(200, answer.statusCode(), what + " " + json + ": " + answer.body());
        return answer.body();
    }

    /** Of an object of JSON: a string or a number. */
    static String field(String json, String name) {
        return json.replaceFirst("(?s).*\"" + name + "\": \"?([^\",}]*).*", "$1");
    }

    /** A row of the application's, with the key of the case. */
    void call(String state) {
        sql("do $$ begin create table if not exists call (id text primary key, state text not null); exception when unique_violation then null; end $$");
        sql("insert into call values ('%s', '%s')", key, state);
    }

    String callState() {
        return sql("select state from call where id = '%s'", key);
    }

    /** A connection of the application's, which breaks at COMMIT: tests/clients/commit_proxy.py. */
    Connection commitProxy(String mode) throws Exception {
        String port = field(ask("commit_proxy", "{\"mode\": \"" + mode + "\"}"), "port");
        Connection connection = DriverManager.getConnection(url.replaceFirst(":\\d+/", ":" + port + "/") + "&prepareThreshold=0");
        return atEnd(connection);
    }

    /** As if the holder had neither renewed nor acquired since. */
    void silence(int seconds) {
        sql("update leasehold.scope set acquired_at = acquired_at - interval '%d s', heartbeat_at = heartbeat_at - interval '%d s' "
                + "where namespace = 'cases' and key = '%s'", seconds, seconds, key);
    }

    String row(String columns) {
        return row("cases", columns);
    }

    String row(String namespace, String columns) {
        return sql("select %s from leasehold.scope where namespace = '%s' and key = '%s'", columns, namespace, key);
    }

    int beats() {
        return Integer.parseInt("0" + row("heartbeats"));
    }

    /** Token and units of each holder. */
    String shares() {
        return sql("select token, units from leasehold.lease where namespace = 'cases' and key = '%s' order by token", key);
    }

    int beats(Lease lease) {
        return Integer.parseInt("0" + sql("select heartbeats from leasehold.lease where token = %d", lease.token()));
    }

    String waiters() {
        return sql("select count(*) from leasehold.queue where namespace = 'cases' and key = '%s'", key);
    }

    void forceRelease(String namespace) {
        sql("select from leasehold.force_release('%s', '%s', 'a test')", namespace, key);
    }

    LeaseRequest lease(LeaseClient client) {
        return client.lease("cases", key);
    }

    static Duration seconds(int n) {
        return Duration.ofSeconds(n);
    }

    static void sleep(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    /** A bound, not a measurement. It looks less and less often: what is looked at is what computes most in these tests. */
    static void await(String what, Callable<Boolean> condition) throws Exception {
        long pause = 5;
        for (long end = System.nanoTime() + 120_000_000_000L; !condition.call(); sleep(pause)) {
            pause = Math.min(pause * 3 / 2, 100);
            if (System.nanoTime() > end) {
                fail(what + " did not come true within two minutes");
            }
        }
    }

    /** What runs in a thread of its own: its result, and the thread, to be interrupted. */
    static final class Later<T> {
        final CompletableFuture<T> result = new CompletableFuture<>();
        final Thread thread;

        Later(Callable<T> work) {
            thread = new Thread(() -> {
                try {
                    result.complete(work.call());
                } catch (Throwable trouble) {
                    result.completeExceptionally(trouble);
                }
            });
            thread.setDaemon(true);
            thread.start();
        }

        T get() throws Exception {
            return result.get(180, java.util.concurrent.TimeUnit.SECONDS); // a bound, not a measurement
        }

        Throwable trouble() throws Exception {
            try {
                throw new AssertionError("it succeeded: " + get());
            } catch (java.util.concurrent.ExecutionException e) {
                return e.getCause();
            }
        }
    }

    /** Starts an acquire, and returns when it has the nth place. */
    Later<Lease> queue(LeaseRequest request, int n) throws Exception {
        Later<Lease> waiter = new Later<>(request::acquire);
        await("place " + n + " in the queue", () -> waiters().equals(String.valueOf(n)));
        return waiter;
    }

    Later<Lease> queue(LeaseClient client, int n) throws Exception {
        return queue(lease(client).waitFor(seconds(180)), n);
    }

    static LeaseException.Lost lost(Lease lease) throws Exception {
        List<LeaseException.Lost> told = new ArrayList<>();
        CompletableFuture<LeaseException.Lost> first = new CompletableFuture<>();
        lease.onLost(loss -> {
            told.add(loss);
            first.complete(loss);
        });
        LeaseException.Lost loss = first.get(3, java.util.concurrent.TimeUnit.MINUTES);
        assertEquals(1, told.size());
        return loss;
    }
}
