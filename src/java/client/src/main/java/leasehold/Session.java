package leasehold;

import java.sql.Connection;
import java.sql.Driver;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Properties;
import org.postgresql.PGConnection;
import org.postgresql.util.PSQLException;
import org.postgresql.util.ServerErrorMessage;

/** One connection. No statement takes longer than its caller allows: one that does breaks the connection. */
final class Session implements AutoCloseable {
    private static final Driver DRIVER = new org.postgresql.Driver();
    private final Connection connection;
    private final PGConnection driver;
    /** Each transaction may run in another backend: LISTEN hears nothing. */
    final boolean isPooled;
    private volatile boolean isBroken;

    interface Reader<T> {
        T read(ResultSet rows) throws SQLException;
    }

    Session(String url, Properties properties, long patience) {
        Properties mine = new Properties();
        for (String name : properties.stringPropertyNames()) {
            mine.setProperty(name, properties.getProperty(name));
        }
        String seconds = String.valueOf(Math.max(1, (patience + 999_999_999) / 1_000_000_000));
        mine.putIfAbsent("ApplicationName", "leasehold");
        mine.putIfAbsent("targetServerType", "primary"); // of several servers the first may be a standby; the URL counts before this
        mine.setProperty("connectTimeout", seconds);
        mine.setProperty("socketTimeout", seconds);
        mine.setProperty("prepareThreshold", "0"); // poolers may give the next statement to another backend
        try {
            connection = DRIVER.connect(url, mine);
            if (connection == null) {
                throw new LeaseException.InvalidArgument("url", "one of pgjdbc's: jdbc:postgresql://HOST/DATABASE", null);
            }
            driver = connection.unwrap(PGConnection.class);
        } catch (SQLException e) {
            throw exception("", "", e, Retry.Reason.SOCKET_NOT_AVAILABLE);
        }
        int backend;
        try {
            backend = query(patience, "", "", "select pg_backend_pid()", rows -> rows.next() ? rows.getInt(1) : 0);
        } catch (LeaseException e) {
            abort();
            throw e;
        }
        isPooled = backend != driver.getBackendPID();
    }

    /** Runs a statement, in a transaction of its own. namespace and key are for errors. */
    <T> T query(long patience, String namespace, String key, String sql, Reader<T> reader, Object... arguments) {
        try {
            connection.setNetworkTimeout(null, Clock.millis(patience));
            return run(connection, sql, reader, arguments);
        } catch (SQLException e) {
            throw failed(namespace, key, e);
        }
    }

    /** A statement on a connection of anybody's. */
    static <T> T run(Connection connection, String sql, Reader<T> reader, Object... arguments) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            for (int i = 0; i < arguments.length; i++) {
                if (arguments[i] instanceof String[] array) {
                    statement.setArray(i + 1, connection.createArrayOf("text", array));
                } else {
                    statement.setObject(i + 1, arguments[i]);
                }
            }
            try (ResultSet rows = statement.executeQuery()) {
                return reader.read(rows);
            }
        }
    }

    void listen(long patience, String channel) {
        command(patience, "listen \"" + channel.replace("\"", "\"\"") + "\"");
    }

    void unlisten(long patience) {
        command(patience, "unlisten *");
    }

    private void command(long patience, String sql) {
        try (Statement statement = connection.createStatement()) {
            connection.setNetworkTimeout(null, Clock.millis(patience));
            statement.execute(sql);
        } catch (SQLException e) {
            throw failed("", "", e);
        }
    }

    /** Until a notification comes, at most so long. */
    boolean isNotified(long nanos) {
        try {
            return driver.getNotifications(Clock.millis(nanos)).length > 0;
        } catch (SQLException e) {
            throw failed("", "", e);
        }
    }

    private RuntimeException failed(String namespace, String key, SQLException e) {
        String state = e.getSQLState();
        if (!isServers(e) || state == null || state.startsWith("08") || state.startsWith("57P")) {
            abort();
        }
        return exception(namespace, key, e);
    }

    private static boolean isServers(SQLException e) {
        return e instanceof PSQLException postgres && postgres.getServerErrorMessage() != null;
    }

    boolean isUsable() {
        try {
            return !isBroken && !connection.isClosed();
        } catch (SQLException e) {
            return false;
        }
    }

    /** Breaks the connection at once; from any thread. */
    void abort() {
        isBroken = true;
        try {
            connection.abort(Runnable::run);
        } catch (SQLException e) {
            return; // it is closed already
        }
    }

    @Override
    public void close() {
        isBroken = true;
        try {
            connection.setNetworkTimeout(null, 1000);
            connection.close();
        } catch (SQLException e) {
            return; // it is closed already
        }
    }

    /** The exception of this package for one of PostgreSQL's, or of the connection's. */
    static RuntimeException exception(String namespace, String key, SQLException e) {
        return exception(namespace, key, e, Retry.Reason.SOCKET_CLOSED_WHILE_IN_FLIGHT);
    }

    private static RuntimeException exception(String namespace, String key, SQLException e, Retry.Reason otherwise) {
        String state = e.getSQLState() == null ? "" : e.getSQLState();
        ServerErrorMessage server = e instanceof PSQLException postgres ? postgres.getServerErrorMessage() : null;
        String message = server == null || server.getMessage() == null ? e.getMessage() : server.getMessage();
        // Leasehold's own messages begin with the name of the condition.
        String words = message == null ? "" : message.replaceFirst("^\\w+: ", "");
        switch (state) {
            case "LH001":
                return new LeaseException.Lost(namespace, key, LeaseException.Reason.UNKNOWN, words);
            case "LH002":
                return new LeaseException.InvalidArgument(server == null ? "" : server.getDetail(), server == null ? "" : server.getHint(), e);
            case "LH003":
                return new LeaseException.Denied("NAMESPACE_FROZEN", words, e);
            case "LH004":
                return new LeaseException.Denied("QUOTA_EXCEEDED", words, e);
            case "LH005":
                return new LeaseException.Denied("HOOK_REJECTED", words, e);
            case "LH006":
                return new LeaseException.Denied("LEASE_ENDED", words, e);
            case "LH007", "42501":
                return new LeaseException.Denied("ACCESS_DENIED", message, e);
            default:
                break;
        }
        if (server == null) {
            return new LeaseException.Unavailable(message, e, otherwise);
        }
        if (state.startsWith("28")) {
            return new LeaseException.Denied("UNAUTHENTICATED", message, e);
        }
        Retry.Reason reason = passing(state);
        return reason == null ? new LeaseException.Denied(state, message, e) : new LeaseException.Unavailable(message, e, reason);
    }

    /** Why a repetition may succeed after this SQLSTATE; null: it would fail again. */
    private static Retry.Reason passing(String state) {
        // 25P03 and 25P04: a limit of the server ended the session; 25006 and 0A000: a standby.
        if (state.matches("(08|57P).*|25P03|25P04|25006|0A000|53300")) {
            return Retry.Reason.DATABASE_UNAVAILABLE;
        }
        if (state.matches("(53|58).*|57014")) {
            return Retry.Reason.OVERLOADED;
        }
        return state.matches("40.*|55P03") ? Retry.Reason.SCOPE_BUSY : null;
    }
}
