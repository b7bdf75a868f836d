package leasehold;

import java.sql.Array;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Timestamp;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.function.BooleanSupplier;
import java.util.function.Function;
import java.util.stream.Collectors;

/**
 * The SQL functions, each call one try. One connection renews. Each acquire or release has another one for as long as it lasts; at most
 * two of these are kept for the next.
 */
final class Database implements Transport {
    private static final System.Logger LOG = System.getLogger("leasehold");
    private static final int MOST_IDLE = 2;
    private static final long POOLED_POLL = 200_000_000;
    private static final long POOLED_LOOK = 1_000_000_000; // of a waiter for a tick, who hears no notification
    private static final long BUSY_LOOK = 250_000_000; // at a tick that is due while no more may run
    private static final long SLICE = 100_000_000; // how soon a waiter sees that its caller has given up
    private static final String GRANT = "select g.token, g.left_s, g.units, g.slots, g.is_final ";
    static final String ACQUIRE = GRANT + "from leasehold.acquire_one(?, ?, ?, ?::text, ?::uuid, ?::jsonb, ?::float8, ?, ?, ?) g";
    private static final String CLAIM = GRANT + """
            , c.at, c.attempt, (c.lease).key
              from leasehold.claim_tick(?, ?::text, make_interval(secs => ?), ?::uuid, ?::jsonb) c, leasehold.granted(c.lease) g""";
    static final String CONTENTION = """
            select state, holder, waiters, advice, holders, units_free, is_alive, silent_s, held_s, n, holders_now
              from leasehold.contention(?::text[], ?::text[], ?::text[])""";

    private final String url;
    private final Properties properties;
    private final long patience;
    private final long poll;
    private final Object renewing = new Object();
    private volatile Session renewal; // written under `renewing`
    private final ArrayDeque<Session> idle = new ArrayDeque<>(); // this and the rest: guarded by `this`
    private final Set<Session> used = new HashSet<>();
    private volatile boolean isClosed;
    private boolean hasWarned;
    private boolean isDeaf; // has said that it cannot read requests to hand over; under `renewing`

    Database(String url, Properties properties, long patience, long poll) {
        this.url = url;
        this.properties = properties;
        this.patience = patience;
        this.poll = poll;
    }

    private Session get() {
        synchronized (this) {
            for (Session session = idle.poll(); session != null; session = idle.poll()) {
                if (session.isUsable()) {
                    used.add(session);
                    return session;
                }
            }
        }
        return used(new Session(url, properties, patience));
    }

    private synchronized Session used(Session session) {
        if (isClosed) {
            session.abort();
            throw new IllegalStateException("the client is closed");
        }
        used.add(session);
        return session;
    }

    private void put(Session session) {
        synchronized (this) {
            used.remove(session);
            if (session.isUsable() && idle.size() < MOST_IDLE && !isClosed) {
                idle.push(session);
                return;
            }
        }
        if (session.isUsable()) {
            session.close();
        }
    }

    /** Breaks every connection that is in use. */
    @Override
    public synchronized void abort() {
        isClosed = true;
        used.forEach(Session::abort);
        if (renewal != null) {
            renewal.abort();
        }
    }

    @Override
    public void close() {
        synchronized (this) {
            isClosed = true;
            idle.forEach(Session::close);
            idle.clear();
        }
        synchronized (renewing) {
            if (renewal != null) {
                renewal.close();
            }
        }
    }

    /** All, or none: then the exception names the first that is in the way. It does not wait. */
    @Override
    public List<Grant> acquireAll(List<LeaseScope> scopes, String leaseKey, Terms terms, long until, BooleanSupplier isGivenUp) {
        Session session = get();
        try {
            long sent = Clock.now();
            List<Grant> grants = session.query(patience, "", "", GRANT + """
                      from leasehold.acquire_all(?::text[], ?::text[], make_interval(secs => ?), ?::text, ?::uuid, ?::jsonb, ?::text[], ?::integer[]) a,
                           leasehold.granted(a) g""",
                    rows -> {
                        List<Grant> all = new ArrayList<>();
                        while (rows.next()) {
                            all.add(grant(rows, sent));
                        }
                        return all;
                    }, texts(scopes, LeaseScope::namespace), texts(scopes, LeaseScope::key), Clock.nanos(terms.duration()) / 1e9, terms.owner(), leaseKey,
                    json(terms.labels()), texts(scopes, each -> mode(each.units())), texts(scopes, each -> String.valueOf(Math.max(each.units(), 1))));
            if (grants.isEmpty()) {
                throw held(session, scopes);
            }
            return grants;
        } finally {
            put(session);
        }
    }

    /** Waits until `until`, or until the caller has given up. */
    @Override
    public Grant acquire(Ref ref, Terms terms, long until, BooleanSupplier isGivenUp) {
        Session session = get();
        try {
            Grant grant = take(session, ref, terms);
            if (grant == null) {
                grant = queue(session, ref, terms, until, isGivenUp);
            }
            return grant;
        } finally {
            put(session);
        }
    }

    private Grant take(Session session, Ref ref, Terms terms) {
        long sent = Clock.now();
        return session.query(patience, ref.namespace(), ref.key(), ACQUIRE, rows -> rows.next() ? grant(rows, sent) : null,
                acquireArguments(ref, terms));
    }

    static Object[] acquireArguments(Ref ref, Terms terms) {
        return new Object[] {ref.namespace(), ref.key(), Clock.nanos(terms.duration()) / 1e9, terms.owner(), ref.leaseKey(), json(terms.labels()),
                terms.atLeast().isZero() ? null : (Double) (Clock.nanos(terms.atLeast()) / 1e9), mode(terms.units()), Math.max(terms.units(), 1),
                terms.priority()};
    }

    private static String mode(int units) {
        return units > 0 ? "shared" : "exclusive";
    }

    static Grant grant(ResultSet rows, long sent) throws SQLException {
        Array slots = rows.getArray(4);
        return new Grant(rows.getLong(1), sent + nanos(rows.getDouble(2)), rows.getInt(3),
                slots == null ? List.of() : List.of((Integer[]) slots.getArray()), rows.getBoolean(5), null);
    }

    /** Shared from now on. Gives up soon where somebody keeps the row locked; null: it is not held. */
    @Override
    public Grant downgrade(Ref ref, int units) {
        Session session = get();
        try {
            long sent = Clock.now();
            return session.query(patience, ref.namespace(), ref.key(), GRANT
                    + "from leasehold.downgrade_soon(?, ?, ?::uuid, ?) a, leasehold.granted(a) g", rows -> rows.next() ? grant(rows, sent) : null, ref.namespace(), ref.key(), ref.leaseKey(), units);
        } finally {
            put(session);
        }
    }

    private static long nanos(double seconds) {
        return Math.round(seconds * 1e9);
    }

    private record Place(int position, String channel) {
    }

    private Grant queue(Session session, Ref ref, Terms terms, long asked, BooleanSupplier isGivenUp) {
        long until = asked;
        long pause = session.isPooled ? Math.min(poll, POOLED_POLL) : poll;
        double ttl = Math.max(10, Math.min(2 * (pause / 1e9), 86_400)); // a place that is not asked for again is free after this
        boolean isQueued = false;
        boolean isListening = false;
        String isAsked = "";
        if (session.isPooled && until > Clock.now()) {
            warn();
        }
        try {
            while (until > Clock.now() && !isGivenUp.getAsBoolean()) {
                Place place = session.query(patience, ref.namespace(), ref.key(),
                        "select position, channel from leasehold.join_queue(?, ?, ?::uuid, make_interval(secs => ?), ?, ?, ?)",
                        rows -> rows.next() ? new Place(rows.getInt(1), rows.getString(2)) : null,
                        ref.namespace(), ref.key(), ref.leaseKey(), ttl, mode(terms.units()), Math.max(terms.units(), 1), terms.priority());
                isQueued = true;
                if (!isListening && !session.isPooled) {
                    isListening = true;
                    session.listen(patience, place.channel);
                }
                Grant grant = take(session, ref, terms);
                if (grant != null) {
                    return grant;
                }
                if (terms.asksHandOver()) {
                    isAsked = askOnce(session, ref, isAsked);
                }
                if (terms.whileAlive()) {
                    LeaseException.Held held = held(session, scopes(ref));
                    until = held.isAlive() || held.holders() == 0 ? Clock.NEVER : Math.min(until, Clock.in(terms.longest()));
                }
                await(session, Math.min(until, Clock.now() + pause), isGivenUp);
            }
            LeaseException.Held held = held(session, scopes(ref));
            if (isQueued) {
                leave(session, List.of(ref));
            }
            throw held;
        } finally {
            if (isListening && session.isUsable()) {
                session.unlisten(patience);
            }
        }
    }

    @Override
    public Claimed claim(String schedule, String leaseKey, Terms terms, BooleanSupplier isGivenUp) {
        Session session = get();
        try {
            if (!session.isPooled) {
                session.listen(patience, session.query(patience, schedule, "", "select leasehold.tick_channel(?)", rows -> rows.next() ? rows.getString(1) : "",
                        schedule));
            }
            while (!isGivenUp.getAsBoolean()) {
                long sent = Clock.now();
                Claimed claimed = session.query(patience, schedule, "", CLAIM, rows -> rows.next()
                        ? new Claimed(grant(rows, sent), rows.getString(8), rows.getTimestamp(6).toInstant(), rows.getInt(7)) : null,
                        schedule, terms.owner(), Clock.nanos(terms.duration()) / 1e9, leaseKey, json(terms.labels()));
                if (claimed != null) {
                    return claimed;
                }
                long look = session.query(patience, schedule, "", "select extract(epoch from leasehold.until_tick(?))::float8",
                        rows -> rows.next() && rows.getObject(1) != null ? Math.max(nanos(rows.getDouble(1)), BUSY_LOOK) : Clock.NEVER, schedule);
                await(session, Clock.now() + Math.min(look, session.isPooled ? Math.min(poll, POOLED_LOOK) : poll), isGivenUp);
            }
            throw new LeaseException.Unavailable("the caller has given up", null, Retry.Reason.UNKNOWN);
        } finally {
            if (!session.isPooled && session.isUsable()) {
                session.unlisten(patience);
            }
            put(session);
        }
    }

    private static void await(Session session, long until, BooleanSupplier isGivenUp) {
        for (long left = until - Clock.now(); left > 0 && !isGivenUp.getAsBoolean(); left = until - Clock.now()) {
            long slice = Math.min(left, SLICE);
            if (!session.isPooled) {
                if (session.isNotified(slice)) {
                    return;
                }
            } else {
                Clock.pause(Clock.millis(slice));
            }
        }
    }

    /** As JSON. */
    private static String json(Map<String, String> labels) {
        return labels.entrySet().stream().map(each -> quoted(each.getKey()) + ":" + quoted(each.getValue())).collect(Collectors.joining(",", "{", "}"));
    }

    private static String quoted(String text) {
        StringBuilder json = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                json.append('\\').append(c);
            } else if (c < ' ') {
                json.append(String.format("\\u%04x", (int) c));
            } else {
                json.append(c);
            }
        }
        return json.append('"').toString();
    }

    private synchronized void warn() {
        if (!hasWarned) {
            hasWarned = true;
            LOG.log(System.Logger.Level.WARNING,
                    "a connection pooler is between this client and PostgreSQL: it passes no notifications, so waiters poll");
        }
    }

    static List<LeaseScope> scopes(Ref ref) {
        return List.of(new LeaseScope(ref.namespace(), ref.key()));
    }

    static Object[] contentionArguments(List<LeaseScope> scopes) {
        return new Object[] {texts(scopes, LeaseScope::namespace), texts(scopes, LeaseScope::key), texts(scopes, each -> mode(each.units()))};
    }

    private LeaseException.Held held(Session session, List<LeaseScope> scopes) {
        return session.query(patience, scopes.get(0).namespace(), scopes.get(0).key(), CONTENTION, rows -> held(rows, scopes), contentionArguments(scopes));
    }

    static LeaseException.Held held(ResultSet rows, List<LeaseScope> scopes) throws SQLException {
        rows.next();
        LeaseScope scope = scopes.get(rows.getInt(10) - 1);
        String state = "held".equals(rows.getString(1)) ? "is held by " + rows.getString(2) : "is " + rows.getString(1);
        return new LeaseException.Held("the lease " + LeaseException.scopeName(scope.namespace(), scope.key()) + " " + state + ": "
                + rows.getString(4), rows.getString(2), rows.getInt(3), rows.getInt(5), (Integer) rows.getObject(6),
                (Boolean) rows.getObject(7), (Double) rows.getObject(8), (Double) rows.getObject(9));
    }

    @Override
    public Explanation explain(String namespace, String key) {
        Session session = get();
        try {
            return session.query(patience, namespace, key, """
                    select upper(state), upper(liveness), coalesce(holder, ''), coalesce(principal, ''), coalesce(token, 0), coalesce(units, 0), holders,
                           waiters, since, extract(epoch from clock_timestamp() - last_heartbeat_at)::float8,
                           extract(epoch from rests_until - clock_timestamp())::float8, advice
                      from leasehold.explain(?, ?)""", rows -> {
                        rows.next();
                        Optional<Explanation.Liveness> liveness = Optional.ofNullable(rows.getString(2)).map(Explanation.Liveness::valueOf);
                        return new Explanation(Explanation.State.valueOf(rows.getString(1)), liveness, rows.getString(3), rows.getString(4), rows.getLong(5),
                                rows.getInt(6), rows.getInt(7), rows.getInt(8), Optional.ofNullable(rows.getTimestamp(9)).map(Timestamp::toInstant),
                                duration(rows, 10), duration(rows, 11), rows.getString(12));
                    }, namespace, key);
        } finally {
            put(session);
        }
    }

    private static Optional<Duration> duration(ResultSet rows, int column) throws SQLException {
        double seconds = rows.getDouble(column);
        return rows.wasNull() ? Optional.empty() : Optional.of(Duration.ofNanos(nanos(seconds)));
    }

    @Override
    public boolean waitsForAll() {
        return false;
    }

    @Override
    public Events watch(String namespace, String key, boolean withChildren) {
        throw new LeaseException.InvalidArgument("client", "one of daemons, of leasehold-grpc: SQL has no watch", null);
    }

    private void leave(Session session, List<Ref> refs) {
        Ref first = refs.get(0);
        session.query(patience, first.namespace(), first.key(), "select leasehold.leave_each(?::text[], ?::text[], ?::uuid[])", rows -> null, columns(refs));
    }

    /** A place that cannot be left is free soon: it is not asked for again. */
    @Override
    public List<Answer> undo(List<Ref> refs) {
        try {
            Session session = get();
            try {
                leave(session, refs);
            } finally {
                put(session);
            }
        } catch (LeaseException.Unavailable | IllegalStateException e) {
            return refs.stream().map(unused -> new Answer(null, e)).toList();
        } catch (RuntimeException e) {
            LOG.log(System.Logger.Level.DEBUG, "a place in the queue is not left", e);
        }
        return release(refs.stream().map(each -> new Ending(each, null, UNHEARD)).toList());
    }

    private boolean isHeld(Session session, Ref ref) {
        return session.query(patience, ref.namespace(), ref.key(), """
                select leasehold.heartbeat(s.namespace, ?, ?::uuid) is not null
                  from (select set_config('lock_timeout', '200ms', true) as limits, ?::text as namespace offset 0) s""",
                rows -> rows.next() && rows.getBoolean(1), ref.key(), ref.leaseKey(), ref.namespace());
    }

    @Override
    public Grant extend(Ref ref, Terms terms, long token) {
        Session session = get();
        try {
            Grant grant = take(session, ref, terms);
            if (grant == null && isHeld(session, ref)) {
                throw new LeaseException.Unavailable("somebody keeps the row of "
                        + LeaseException.scopeName(ref.namespace(), ref.key()) + " locked", null, Retry.Reason.SCOPE_BUSY);
            }
            if (grant != null && grant.token() != token) { // it had ended, so long ago that the scope has forgotten it
                undo(ref);
                return null;
            }
            return grant;
        } catch (LeaseException.Denied e) {
            if (e.reason().equals("LEASE_ENDED")) {
                return null;
            }
            throw e;
        } finally {
            put(session);
        }
    }

    /** All in one transaction, and one by one where somebody else keeps the row of one of them locked. */
    @Override
    public List<Beat> heartbeat(List<Ref> refs, long limit) {
        synchronized (renewing) {
            if (isClosed) {
                throw new IllegalStateException("the client is closed");
            }
            if (renewal == null || !renewal.isUsable()) {
                renewal = null;
                renewal = new Session(url, properties, limit);
            }
            try {
                return renew(refs, limit);
            } catch (LeaseException.Unavailable | LeaseException.Denied e) {
                if (refs.size() == 1 || !renewal.isUsable()) {
                    throw e;
                }
            }
            List<Beat> beats = new ArrayList<>();
            for (Ref ref : refs) {
                try {
                    beats.addAll(renew(List.of(ref), limit));
                } catch (LeaseException e) {
                    beats.add(Beat.trouble(e.getMessage()));
                }
            }
            return beats;
        }
    }

    private List<Beat> renew(List<Ref> refs, long limit) {
        List<Beat> beats = new ArrayList<>();
        long sent = Clock.now();
        renewal.query(limit, refs.get(0).namespace(), refs.get(0).key(),
                "select left_s, given_s, reason from leasehold.heartbeat_each(?::text[], ?::text[], ?::uuid[])", rows -> {
                    while (rows.next()) {
                        String reason = rows.getString(3);
                        beats.add(reason != null ? Beat.lost(reason(reason)) : new Beat(nanos(rows.getDouble(1)), nanos(rows.getDouble(2)), null, null, null));
                    }
                    return null;
                }, columns(refs));
        return withRequests(refs, beats, (sent + limit - Clock.now()) / 2);
    }

    /** With the requests to the holders that listen, read in half of the time that is left. Without an answer the next renewal reads them. */
    private List<Beat> withRequests(List<Ref> refs, List<Beat> beats, long limit) {
        if (limit <= 0 || refs.stream().noneMatch(Ref::listens)) {
            return beats;
        }
        List<Beat> all = new ArrayList<>(beats);
        try {
            renewal.query(limit, refs.get(0).namespace(), refs.get(0).key(), "select * from leasehold.asked_each(?::text[], ?::text[], ?::uuid[])", rows -> {
                while (rows.next()) {
                    int i = rows.getInt(1) - 1;
                    Beat beat = beats.get(i);
                    all.set(i, new Beat(beat.remaining(), beat.given(), beat.lost(), beat.trouble(), refs.get(i).listens() ? handOver(rows) : null));
                }
                return null;
            }, columns(refs));
        } catch (LeaseException e) {
            if (!isDeaf) {
                isDeaf = true;
                LOG.log(System.Logger.Level.WARNING, "requests to hand over are not heard", e);
            }
            return beats;
        }
        return all;
    }

    private static Instant at(long micros) {
        return Instant.EPOCH.plus(micros, ChronoUnit.MICROS);
    }

    private static HandOver handOver(ResultSet rows) throws SQLException {
        return new HandOver(at(rows.getLong(2)), rows.getString(3), rows.getString(4), rows.getString(5), at(rows.getLong(6)),
                Duration.of(rows.getLong(7), ChronoUnit.MICROS), rows.getString(8), rows.getString(9), rows.getLong(10));
    }

    /** As the waiter with this lease key or, without one, as an administrator. */
    private List<HandOver> ask(Session session, Ref ref, String reason) {
        return session.query(patience, ref.namespace(), ref.key(), "select * from leasehold.ask_each(?, ?, nullif(?, '')::uuid, ?)", rows -> {
            List<HandOver> found = new ArrayList<>();
            while (rows.next()) {
                found.add(handOver(rows));
            }
            return found;
        }, ref.namespace(), ref.key(), ref.leaseKey(), reason);
    }

    /** Asks whom a waiter waits behind, once: `asked` says whom it has asked, and so does the answer. */
    private String askOnce(Session session, Ref ref, String asked) {
        String holders = session.query(patience, ref.namespace(), ref.key(), CONTENTION,
                rows -> rows.next() ? rows.getString(11) : "", contentionArguments(scopes(ref)));
        if (!holders.equals(asked)) {
            try {
                ask(session, ref, "");
            } catch (LeaseException.InvalidArgument e) { // its place is lost; it joins again
                return asked;
            }
        }
        return holders;
    }

    @Override
    public List<HandOver> askHandOver(String namespace, String key, String reason, String owner) {
        Session session = get();
        try {
            return ask(session, new Ref(namespace, key, ""), reason);
        } finally {
            put(session);
        }
    }

    @Override
    public boolean refuseHandOver(Ref ref, String words) {
        Session session = get();
        try {
            return session.query(patience, ref.namespace(), ref.key(), "select leasehold.refuse_hand_over(?, ?, ?::uuid, ?)",
                    rows -> rows.next() && rows.getBoolean(1), ref.namespace(), ref.key(), ref.leaseKey(), words);
        } finally {
            put(session);
        }
    }

    private static LeaseException.Reason reason(String word) {
        return LeaseException.Reason.valueOf(word.toUpperCase(Locale.ROOT));
    }

    static String releaseCall(String failure) {
        return failure == null ? "select leasehold.release_ok(?, ?, ?::uuid, ?::jsonb)" : "select leasehold.release_fail(?, ?, ?::uuid, ?)";
    }

    /** All in one transaction. One alone waits for somebody who keeps its row locked. */
    @Override
    public List<Answer> release(List<Ending> endings) {
        try {
            Session session = get();
            try {
                return release(session, endings, endings.size() == 1 ? "0" : "200ms");
            } finally {
                put(session);
            }
        } catch (RuntimeException e) {
            return endings.stream().map(unused -> new Answer(null, e)).toList();
        }
    }

    /** One by one where that fails. */
    private List<Answer> release(Session session, List<Ending> endings, String lockTimeout) {
        Ref first = endings.get(0).ref();
        try {
            return session.query(patience, first.namespace(), first.key(),
                    "select reason from leasehold.release_each(?::text[], ?::text[], ?::uuid[], ?::boolean[], ?::text[], ?::interval) reason", rows -> {
                        List<Answer> answers = new ArrayList<>();
                        while (rows.next()) {
                            answers.add(new Answer(rows.getString(1) == null ? null : reason(rows.getString(1)), null));
                        }
                        return answers;
                    }, texts(endings, each -> each.ref().namespace()), texts(endings, each -> each.ref().key()),
                    texts(endings, each -> each.ref().leaseKey()), texts(endings, each -> String.valueOf(each.failure() != null)),
                    texts(endings, each -> each.failure() == null ? each.result() : each.failure()), lockTimeout);
        } catch (RuntimeException e) {
            return endings.stream().map(each -> endings.size() > 1 && session.isUsable() ? release(session, List.of(each), "50ms").get(0)
                    : new Answer(null, e)).toList();
        }
    }

    /** What the functions for several leases take. */
    private static Object[] columns(List<Ref> refs) {
        return new Object[] {texts(refs, Ref::namespace), texts(refs, Ref::key), texts(refs, Ref::leaseKey)};
    }

    private static <T> String[] texts(List<T> rows, Function<T, String> column) {
        return rows.stream().map(column).toArray(String[]::new);
    }
}
