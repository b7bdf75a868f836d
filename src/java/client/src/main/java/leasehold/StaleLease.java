package leasehold;

import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;

/**
 * A lease that its holder left to expire.
 *
 * @param namespace segments with dots between
 * @param key the name inside of the namespace
 * @param owner what the holder said of itself; null: nothing
 * @param token its fencing token
 * @param acquiredAt by the database's clock
 * @param deadline by the database's clock
 * @param limit the time for what is done at its end: hook_timeout of the policy; zero: none
 */
public record StaleLease(String namespace, String key, String owner, long token, Instant acquiredAt, Instant deadline, Duration limit) {
    /**
     * How many leases a reap was about.
     *
     * @param ended they are free
     * @param failed a hook, or what was to be done, failed: they stay expired, and are reaped later
     */
    public record Count(long ended, long failed) {
    }

    /** What is done at the end of a lease. */
    @FunctionalInterface
    public interface End {
        /**
         * Is called in a transaction on the connection, which commits with the end of the lease. It must not end that.
         *
         * @param lease that has expired
         * @throws Exception both are rolled back; the words are written down in leasehold.reap_failure
         */
        void at(StaleLease lease) throws Exception;
    }

    /**
     * Ends what has expired, each lease in a transaction of its own on the connection, after the hooks in SQL, until none is due. A failure delays no
     * other lease, and is tried again with backoff. What was not committed may be called again. The role is a member of leasehold_admin or
     * leasehold_coordinator. Any number of reapers and daemons may run at once.
     *
     * @param connection to the database, with no transaction open
     * @param namespaces of these; none: of all but those with reaper = external
     * @param children of the namespaces below them, too
     * @param end is called for each
     * @return how many
     * @throws SQLException the connection fails; what was done before stays
     * @throws IllegalStateException a transaction is open
     * @throws LeaseException.InvalidArgument a namespace is out of bounds
     */
    public static Count reap(Connection connection, List<String> namespaces, boolean children, End end) throws SQLException {
        namespaces.forEach(Bounds::namespace);
        Reaper reaper = new Reaper(connection, namespaces, children, end);
        for (long before = -1; reaper.ended > before;) {
            before = reaper.ended;
            reaper.sweep();
        }
        return new Count(reaper.ended, reaper.failed);
    }

    private record Row(boolean isStale, Long checkAt, StaleLease lease) {
    }

    private static final class Reaper {
        private static final int MOST = 1000; // in a list
        private final Connection connection;
        private final List<String> namespaces;
        private final boolean children;
        private final End end;
        private long ended;
        private long failed;
        private Long until; // a sweep by name passes over what has failed since the first began

        Reaper(Connection connection, List<String> namespaces, boolean children, End end) {
            this.connection = connection;
            this.namespaces = namespaces;
            this.children = children;
            this.end = end;
        }

        /** Looks at everything once. */
        void sweep() throws SQLException {
            Row after = new Row(false, null, null);
            if (namespaces.isEmpty()) {
                until = null;
            }
            for (List<Row> rows = list(after);; rows = list(after)) {
                for (Row row : rows) {
                    after = row;
                    if (row.isStale) {
                        visit(row.lease);
                    }
                }
                if (rows.size() < MOST) {
                    return;
                }
            }
        }

        private List<Row> list(Row after) throws SQLException {
            Transaction transaction = Transaction.begin(connection);
            try {
                List<Row> found = Session.run(connection, """
                        select is_stale, until_us, check_at_us, namespace, key, owner, token, acquired_at_us, deadline_at_us, limit_us
                          from leasehold_internal.reap_stale_list(?::text[], ?, ?, ?::bigint, ?::bigint, ?::text, ?::text, ?::bigint)""", this::read,
                        namespaces.isEmpty() ? null : namespaces.toArray(String[]::new), children, MOST, until, after.checkAt,
                        after.lease == null ? null : after.lease.namespace, after.lease == null ? null : after.lease.key,
                        after.lease == null ? null : (Long) after.lease.token);
                settle(transaction); // a new life of the database may have been written down
                return found;
            } catch (SQLException e) {
                transaction.rollback();
                throw e;
            }
        }

        private List<Row> read(ResultSet rows) throws SQLException {
            List<Row> found = new ArrayList<>();
            while (rows.next()) {
                until = rows.getLong(2);
                found.add(new Row(rows.getBoolean(1), (Long) rows.getObject(3), new StaleLease(rows.getString(4), rows.getString(5), rows.getString(6),
                        rows.getLong(7), at(rows.getLong(8)), at(rows.getLong(9)), Duration.ofNanos(rows.getLong(10) * 1000))));
            }
            return found;
        }

        private static Instant at(long micros) {
            return Instant.EPOCH.plusNanos(micros * 1000);
        }

        private void visit(StaleLease lease) throws SQLException {
            Transaction transaction = Transaction.begin(connection);
            Exception trouble;
            try {
                trouble = tryEnd(transaction, lease);
            } catch (SQLException | RuntimeException | Error e) {
                transaction.rollback();
                throw e;
            }
            if (trouble != null) {
                transaction.rollback();
                Transaction record = Transaction.begin(connection);
                Session.run(connection, "select from leasehold_internal.reap_failed(null, ?, ?, ?, ?)", unused -> null, lease.namespace, lease.key,
                        lease.token, Interrupter.words(trouble));
                settle(record);
                failed++;
            }
        }

        /** Null, or what it is to be rolled back for. */
        private Exception tryEnd(Transaction transaction, StaleLease lease) throws SQLException {
            try (Statement statement = connection.createStatement()) {
                statement.execute("set local statement_timeout = " + lease.limit.toMillis());
            }
            try {
                String kind = Session.run(connection, "select kind from leasehold_internal.reap_hooked(null, null, ?, ?, ?)",
                        rows -> rows.next() ? rows.getString(1) : "", lease.namespace, lease.key, lease.token);
                if (kind.equals("reaped")) {
                    long begun = Clock.now();
                    end.at(lease);
                    if (!lease.limit.isZero() && Clock.now() - begun > lease.limit.toNanos()) {
                        return new IllegalStateException("it ran over its limit of " + lease.limit);
                    }
                    if (!namespaces.isEmpty()) {
                        Session.run(connection, "select leasehold_internal.audit_reaped(?::text[])", unused -> null, (Object) new String[] {lease.namespace});
                    }
                }
                settle(transaction);
                ended += kind.equals("reaped") ? 1 : 0;
                failed += kind.isEmpty() || kind.equals("reaped") ? 0 : 1; // a hook refused, and that is written down
                return null;
            } catch (Exception e) {
                if (!connection.isValid(1)) {
                    throw e instanceof SQLException broken ? broken : new SQLException(e);
                }
                return e;
            }
        }

        private static void settle(Transaction transaction) throws SQLException {
            SQLException unanswered = transaction.commit();
            if (unanswered != null) {
                throw unanswered;
            }
        }
    }
}
