package leasehold.testing;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.UnixDomainSocketAddress;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.Duration;

/** The namespace of one test, and what the test does to those who hold leases there. */
public final class World {
    private static final Duration LONGEST = Duration.ofDays(365);
    private final Daemon daemon;
    private final Faults faults = new Faults();
    private final Pipe server;
    private final Pipe database;
    private final String namespace;

    World(Daemon daemon) {
        this.daemon = daemon;
        namespace = "test-" + daemon.nextWorld();
        try {
            server = new Pipe(daemon.server(), false, faults);
            database = new Pipe(UnixDomainSocketAddress.of(daemon.socket()), true, faults);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    void close() {
        faults.close();
        server.close();
        database.close();
    }

    /**
     * The namespace.
     *
     * @return that no other test has
     */
    public String namespace() {
        return namespace;
    }

    /**
     * The daemon, for Daemons.at of leasehold-grpc. {@link #drop}, {@link #delay} and {@link #silence} work on it.
     *
     * @return its address
     */
    public String server() {
        return server.address();
    }

    /**
     * Its database, for LeaseClient.create. {@link #drop}, {@link #delay} and {@link #silence} work on it.
     *
     * @return a URL of pgjdbc
     */
    public String url() {
        return "jdbc:postgresql://" + database.address() + "/leasehold?user=leasehold&sslmode=disable&gssEncMode=disable";
    }

    /**
     * A connection of the test's own, which nothing is done to.
     *
     * @return the connection
     * @throws SQLException it cannot be made
     */
    public Connection connect() throws SQLException {
        return DriverManager.getConnection("jdbc:postgresql://localhost/leasehold?user=leasehold&socketFactory=leasehold.UnixSocketFactory&socketFactoryArg="
                + daemon.socket());
    }

    /**
     * Has an administrator end the lease.
     *
     * @param key of this namespace
     * @return false: nobody has it
     * @throws SQLException it cannot be asked
     */
    public boolean lose(String key) throws SQLException {
        return run("select count(*) from leasehold.force_release(?, ?, 'a test', all_holders => true)", namespace, key) > 0;
    }

    /**
     * Makes the leases here older. Those whose time is over end.
     *
     * @param time above zero, at most a year
     * @throws SQLException it cannot be done
     */
    public void pass(Duration time) throws SQLException {
        long micros = checked("the time that passes", time).toNanos() / 1000;
        for (String table : new String[] {"scope", "share"}) {
            run("""
                    with aged as (
                      update leasehold.%s set acquired_at = acquired_at - t.by, heartbeat_at = heartbeat_at - t.by, deadline = deadline - t.by,
                                              ended_at = ended_at - t.by, check_at = check_at - t.by
                        from (select ?::bigint * interval '1 us' as by, ?::text as namespace) t
                       where %1$s.namespace = t.namespace or starts_with(%1$s.namespace, t.namespace || '.')
                      returning 1)
                    select count(*) from aged""".formatted(table), micros, namespace);
        }
        run("select count(*) from leasehold.reap()");
    }

    private static Duration checked(String what, Duration time) {
        if (time.isNegative() || time.isZero() || time.compareTo(LONGEST) > 0) {
            throw new IllegalArgumentException(what + " must be above 0, at most " + LONGEST + ", not " + time);
        }
        return time;
    }

    private long run(String sql, Object... with) throws SQLException {
        try (Connection connection = connect(); PreparedStatement statement = connection.prepareStatement(sql)) {
            for (int i = 0; i < with.length; i++) {
                statement.setObject(i + 1, with[i]);
            }
            try (ResultSet rows = statement.executeQuery()) {
                rows.next();
                return rows.getLong(1);
            }
        }
    }

    /** Breaks every connection of every test; the daemon and its PostgreSQL start again, on the same address and a new timeline. */
    public void failOver() {
        daemon.failOver();
    }

    /** What is asked of Leasehold next is done, its answer gets lost, and the connection is cut. */
    public void drop() {
        faults.add(Duration.ZERO);
    }

    /**
     * Lets the next answer of Leasehold come later.
     *
     * @param time above zero, at most a year
     */
    public void delay(Duration time) {
        faults.add(checked("a delay", time));
    }

    /**
     * Keeps every answer back, or lets those arrive.
     *
     * @param on whether none arrives
     */
    public void silence(boolean on) {
        faults.silence(on);
    }
}
