package leasehold;

import java.sql.Connection;
import java.sql.SQLException;
import org.postgresql.core.BaseConnection;
import org.postgresql.core.TransactionState;
import org.postgresql.util.PSQLException;

/**
 * A transaction on the caller's own connection, in which a lease begins or ends: its row commits with the caller's, or neither does.
 *
 * <p>The package begins it and commits it, so it knows the outcome: a lease is renewed from the commit that acquires it, and until the
 * commit that releases it. A connection that has a transaction open is refused: its COMMIT would be somebody else's, and the client would
 * believe in a lease that is gone, or stop renewing one that is not. When the connection breaks at COMMIT, a heartbeat tells whether the
 * lease is still held: the transaction has its row locked, so no answer comes before the transaction's end.
 */
final class Transaction {
    private final Connection connection;
    private final boolean wasAutomatic;

    private Transaction(Connection connection) throws SQLException {
        this.connection = connection;
        wasAutomatic = connection.getAutoCommit();
        connection.setAutoCommit(false);
    }

    static Transaction begin(Connection connection) throws SQLException {
        if (connection.unwrap(BaseConnection.class).getTransactionState() != TransactionState.IDLE) {
            throw new IllegalStateException("connection must have no transaction open: this begins one, and commits it");
        }
        return new Transaction(connection);
    }

    /** Null: somebody else holds it. */
    Transport.Grant acquire(Transport.Ref ref, LeaseRequest request) throws SQLException {
        long sent = Clock.now();
        return Session.run(connection, Database.ACQUIRE, rows -> rows.next() ? Database.grant(rows, sent) : null,
                Database.acquireArguments(ref, request.terms()));
    }

    LeaseException.Held held(Transport.Ref ref) throws SQLException {
        return Session.run(connection, Database.CONTENTION, rows -> Database.held(rows, Database.scopes(ref)), Database.contentionArguments(Database.scopes(ref)));
    }

    /** False: it was not held any more. */
    boolean release(Transport.Ref ref, String result, String failure) throws SQLException {
        return Session.run(connection, Database.releaseCall(failure), rows -> rows.next() && rows.getBoolean(1), ref.namespace(), ref.key(),
                ref.leaseKey(), failure == null ? result : failure);
    }

    /** Null: it is committed. What is returned says that nobody answered; what is thrown, that it was rolled back. */
    SQLException commit() throws SQLException {
        try {
            connection.commit();
        } catch (SQLException e) {
            if (isAnswered(e)) {
                throw e;
            }
            return e;
        }
        restore();
        return null;
    }

    /** PostgreSQL says that it was rolled back. A server that shuts down says nothing of it. */
    private static boolean isAnswered(SQLException e) {
        String state = e.getSQLState() == null ? "" : e.getSQLState();
        return e instanceof PSQLException postgres && postgres.getServerErrorMessage() != null && !state.startsWith("08") && !state.startsWith("57P");
    }

    void rollback() {
        try {
            connection.rollback();
            restore();
        } catch (SQLException e) {
            return; // the connection is broken: nothing was committed
        }
    }

    private void restore() throws SQLException {
        if (wasAutomatic) {
            connection.setAutoCommit(true);
        }
    }

    /** This package's exception for a condition of Leasehold's, else the driver's own. */
    static RuntimeException translate(Transport.Ref ref, SQLException e) throws SQLException {
        if (e.getSQLState() == null || !e.getSQLState().startsWith("LH")) {
            throw e;
        }
        return Session.exception(ref.namespace(), ref.key(), e);
    }
}
