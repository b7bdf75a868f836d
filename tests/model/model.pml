/*
 * One scope, its queue, and who wants it: two coordinators (A, B) with clients, and SQL users. README.md says which part of the
 * code each step stands for, and what each LEAVE_OUT_... leaves out.
 *
 * A transaction is two steps: it takes the lock of the scope's row; then it reads the queue, decides, and commits. What another
 * transaction has locked is tried again, or waited for; pass_on alone gives it up.
 *
 * Scenarios (-D): HOLDER   client 0, a SQL user, holds the lease at first; else the scope has no row yet
 *                 HOME1, HOME2, HOME3   where each of the other clients waits: IS_A, IS_B or IS_SQL
 *                 CANCELS, DEATHS, EXPIRIES, LOSSES   how many of each may happen
 *                 POLL     the slow poll and the reaper look at the scope
 */
#define N 4
#define NOBODY 255
#define IS_A 0
#define IS_B 1
#define IS_SQL 2

mtype = { IDLE, LINED, ASKING, QUEUED, HOLDS, EXPIRED, DONE, LEFT, UNHEARD };
mtype = { NOTHING, ASK, RELEASE, LEAVE, SWEEP, REAP, LOOK };

/* The database. */
byte holder = NOBODY;     /* the row of leasehold.scope */
bool row;                 /* is there one? */
bool lock;                /* does a transaction have it? */
byte ticket[N];           /* the rows of leasehold.waiter; 0: none */
byte next_ticket = 1;
bool stale[2], swept[2];  /* not seen for 3.5 s; its waiters removed */

/* Its clients. */
mtype state[N];
byte home[N];
byte arrived[N];          /* the order at a coordinator */
byte arrivals;
bool gone[N];             /* the caller no longer wants it */
bool dead[2];
bool wake[2], passing[2]; /* a notification has come; it is being passed on */
bool told[N];             /* the same for a SQL user */
byte cancels = CANCELS, deaths = DEATHS, expiries = EXPIRIES, losses = LOSSES;

#define IS_WAITING(i) (state[i] == LINED || state[i] == ASKING || state[i] == QUEUED)
#define IS_OPEN (holder == NOBODY || state[holder] == EXPIRED)
#define IS_COORDINATORS(i) (home[i] != IS_SQL)

byte h, k, first;         /* of the step that runs: each is atomic */

/* h = the first live waiter */
inline find_head() {
    h = NOBODY; k = 0;
    do
    :: k < N ->
        if
        :: ticket[k] > 0 && (h == NOBODY || ticket[k] < ticket[h]) && (!IS_COORDINATORS(k) || !stale[home[k] & 1]) -> h = k
        :: else
        fi;
        k++
    :: else -> break
    od;
    k = 0
}

/* NOTIFY for the client who; who gets it by an answer does not lose it */
inline notify(who, by_answer) {
    if
    :: who == NOBODY
    :: who != NOBODY && losses > 0 && !by_answer -> losses--
    :: who != NOBODY && IS_COORDINATORS(who) -> wake[home[who] & 1] = !dead[home[who] & 1]
    :: who != NOBODY && !IS_COORDINATORS(who) -> told[who] = true
    fi
}

inline wake_head(c) {
    find_head();
    notify(h, h != NOBODY && home[h] == c);
    h = NOBODY
}

/* One holder; first come, first served */
inline grant(i) {
    assert(IS_OPEN);
    k = 0;
    do
    :: k < N ->
        assert(k == i || state[k] != HOLDS);
        assert(k == i || ticket[k] == 0 || (ticket[i] > 0 && ticket[i] < ticket[k]) || gone[k] ||
               (IS_COORDINATORS(k) && dead[home[k] & 1]));
        assert(k == i || home[k] != home[i] || !IS_COORDINATORS(i) || gone[k] || !(state[k] == LINED || state[k] == ASKING) ||
               arrived[k] > arrived[i]);
        k++
    :: else -> break
    od;
    k = 0;
    holder = i;
    ticket[i] = 0
}

/* May i have it? The head was read after the lock: find_head() has just run */
#define IS_FIRST(i) (h == NOBODY || h == i || (ticket[i] > 0 && ticket[i] < ticket[h]))

inline enqueue(i) {
    if
    :: ticket[i] == 0 -> ticket[i] = next_ticket; next_ticket++
    :: else
    fi
}

/* What an acquire decides about its item. Its answer is heard, unless who asked has been forgotten */
inline decide(i) {
    if
    :: IS_OPEN && IS_FIRST(i) ->
        grant(i);
        state[i] = (state[i] == UNHEARD -> LEFT : HOLDS)
    :: else ->
        enqueue(i);
        state[i] = (state[i] == UNHEARD -> LEFT : QUEUED)
    fi
}

/* The items that are in flight, in the order in which they came: first = the next of them */
inline next_in_batch(c) {
    first = NOBODY; k = 0;
    do
    :: k < N ->
        if
        :: home[k] == c && (state[k] == ASKING || state[k] == UNHEARD) &&
#ifdef LEAVE_OUT_NUMBERS
           (first == NOBODY || arrived[k] > arrived[first]) -> first = k
#else
           (first == NOBODY || arrived[k] < arrived[first]) -> first = k
#endif
        :: else
        fi;
        k++
    :: else -> break
    od;
    k = 0
}

/* first = the first waiter of a coordinator that sleeps */
inline first_asleep(c) {
    first = NOBODY; k = 0;
    do
    :: k < N ->
        if
        :: home[k] == c && state[k] == QUEUED && !gone[k] && (first == NOBODY || ticket[k] < ticket[first]) -> first = k
        :: else
        fi;
        k++
    :: else -> break
    od;
    k = 0
}

#define OF(c, i, s) (home[i] == c && state[i] == s)
#define ANY(c, s) (OF(c, 0, s) || OF(c, 1, s) || OF(c, 2, s) || OF(c, 3, s))
#define IN_FLIGHT(c) (ANY(c, ASKING) || ANY(c, UNHEARD))

#define LEAVES(c, i) (home[i] == c && gone[i] && (state[i] == QUEUED || state[i] == LINED))

inline line_up(i, c) {
    if
    :: OF(c, i, LINED) && !gone[i] -> state[i] = ASKING
    :: else
    fi
}

/* A statement's snapshot is older than the lock it takes: what a transaction that reads the queue there would see */
#ifdef LEAVE_OUT_LATER_STATEMENT
#define SNAPSHOT find_head(); seen = h; h = NOBODY;
#define READ_QUEUE h = seen; seen = NOBODY
#else
#define SNAPSHOT
#define READ_QUEUE find_head()
#endif

proctype Coordinator(byte c) {
    mtype doing = NOTHING;
    byte item = NOBODY;
    bool has_lock;
#ifdef LEAVE_OUT_LATER_STATEMENT
    byte seen = NOBODY;
#endif
    byte i;

end:
    do
    /* --- memory --- */
    :: atomic { !dead[c] && ANY(c, IDLE) ->
           if
           :: OF(c, 1, IDLE) -> i = 1
           :: OF(c, 2, IDLE) -> i = 2
           :: OF(c, 3, IDLE) -> i = 3
           fi;
           arrivals++; arrived[i] = arrivals; state[i] = LINED; i = 0 }
#ifdef LEAVE_OUT_RIDE_ALONG
    :: atomic { !dead[c] && doing == NOTHING && !IN_FLIGHT(c) && ANY(c, LINED) ->
           if
           :: OF(c, 1, LINED) -> line_up(1, c)
           :: OF(c, 2, LINED) -> line_up(2, c)
           :: OF(c, 3, LINED) -> line_up(3, c)
           fi }
#else
    :: atomic { !dead[c] && doing == NOTHING && !IN_FLIGHT(c) &&
                ((OF(c, 1, LINED) && !gone[1]) || (OF(c, 2, LINED) && !gone[2]) || (OF(c, 3, LINED) && !gone[3])) ->
           line_up(1, c); line_up(2, c); line_up(3, c) }
#endif
    :: atomic { !dead[c] && wake[c] && doing == NOTHING && !IN_FLIGHT(c) ->
           wake[c] = false;
           first_asleep(c);
           if
           :: first != NOBODY -> state[first] = LINED
           :: first == NOBODY && !ANY(c, LINED) ->
#ifndef LEAVE_OUT_PASS_ON
               passing[c] = true
#else
               skip
#endif
           :: else
           fi;
           first = NOBODY }
    :: atomic { !dead[c] && passing[c] -> /* another session that has the row wakes */
           passing[c] = false;
           if
           :: !lock && row && holder == NOBODY -> wake_head(c)
           :: else
           fi }

    /* --- a transaction begins --- */
    :: atomic { !dead[c] && doing == NOTHING && IN_FLIGHT(c) -> doing = ASK; SNAPSHOT }
    :: atomic { !dead[c] && doing == NOTHING && ANY(c, HOLDS) ->
           if
           :: OF(c, 1, HOLDS) -> item = 1
           :: OF(c, 2, HOLDS) -> item = 2
           :: OF(c, 3, HOLDS) -> item = 3
           fi;
           doing = RELEASE; SNAPSHOT }
    :: atomic { !dead[c] && doing == NOTHING && (LEAVES(c, 1) || LEAVES(c, 2) || LEAVES(c, 3)) ->
           if
           :: LEAVES(c, 1) -> item = 1
           :: LEAVES(c, 2) -> item = 2
           :: LEAVES(c, 3) -> item = 3
           fi;
           doing = LEAVE; SNAPSHOT }
#ifdef LEAVE_OUT_ONE_AT_A_TIME
    /* The leave is sent while the acquire is in flight, on another connection, and is done first */
    :: atomic { !dead[c] && !lock && OF(c, 1, ASKING) && gone[1] -> ticket[1] = 0; state[1] = UNHEARD }
    :: atomic { !dead[c] && !lock && OF(c, 2, ASKING) && gone[2] -> ticket[2] = 0; state[2] = UNHEARD }
    :: atomic { !dead[c] && !lock && OF(c, 3, ASKING) && gone[3] -> ticket[3] = 0; state[3] = UNHEARD }
#endif
    :: atomic { !dead[c] && doing == NOTHING && stale[1 - c] && !swept[1 - c] -> doing = SWEEP; SNAPSHOT }
    :: atomic { !dead[c] && doing == NOTHING && holder != NOBODY && state[holder] == EXPIRED -> doing = REAP; SNAPSHOT }

    /* --- it has the lock --- */
    :: atomic { !dead[c] && doing != NOTHING && !has_lock && !lock -> lock = true; has_lock = true; row = true }
#ifdef LEAVE_OUT_LOCK_TO_QUEUE
    /* It has seen that the scope is held, and queues without the lock */
    :: atomic { !dead[c] && doing == ASK && !has_lock && !IS_OPEN -> doing = LOOK }
    :: atomic { !dead[c] && doing == LOOK && !has_lock ->
           next_in_batch(c);
           do
           :: first != NOBODY -> enqueue(first); state[first] = (state[first] == UNHEARD -> LEFT : QUEUED); next_in_batch(c)
           :: else -> break
           od;
           doing = NOTHING }
#endif
#ifdef LEAVE_OUT_LOCK_TO_LEAVE
    :: atomic { !dead[c] && doing == LEAVE && !has_lock -> ticket[item] = 0; state[item] = LEFT; doing = NOTHING; item = NOBODY }
#endif

    /* --- it commits --- */
    :: atomic { has_lock && doing == ASK ->
           READ_QUEUE;
           next_in_batch(c);
           i = first; /* the first of the batch decides whether the scope stays open */
           do
           :: first != NOBODY ->
               i = first;
               decide(i);
               find_head();
               next_in_batch(c)
           :: else -> break
           od;
           if
#ifndef LEAVE_OUT_OPEN_WAKES
           :: IS_OPEN -> wake_head(c)
#endif
           :: else
           fi;
           i = 0; lock = false; has_lock = false; doing = NOTHING; item = NOBODY }
    :: atomic { has_lock && doing == RELEASE ->
           READ_QUEUE;
           if
           :: holder == item -> holder = NOBODY; notify(h, h != NOBODY && home[h] == c)
           :: else
           fi;
           state[item] = DONE;
           lock = false; has_lock = false; doing = NOTHING; item = NOBODY; h = NOBODY }
    :: atomic { has_lock && doing == LEAVE ->
           ticket[item] = 0; state[item] = LEFT;
           if
#ifndef LEAVE_OUT_LEAVE_WAKES
           :: IS_OPEN -> wake_head(c)
#endif
           :: else
           fi;
           lock = false; has_lock = false; doing = NOTHING; item = NOBODY }
    :: atomic { has_lock && doing == SWEEP ->
           i = 1;
           do
           :: i < N ->
               if
               :: home[i] == 1 - c && ticket[i] > 0 -> ticket[i] = 0
#ifdef LEAVE_OUT_TOGETHER
                   ; i = N - 1
#endif
               :: else
               fi;
               i++
           :: else -> break
           od;
           swept[1 - c] = true;
           if
#ifndef LEAVE_OUT_SWEEP_WAKES
           :: IS_OPEN -> wake_head(c)
#endif
           :: else
           fi;
           i = 0; lock = false; has_lock = false; doing = NOTHING; item = NOBODY }
    :: atomic { has_lock && doing == REAP ->
           READ_QUEUE;
           if
           :: holder != NOBODY && state[holder] == EXPIRED -> holder = NOBODY
           :: else
           fi;
           if
           :: IS_OPEN -> notify(h, h != NOBODY && home[h] == c)
           :: else
           fi;
           h = NOBODY; lock = false; has_lock = false; doing = NOTHING; item = NOBODY }

    /* --- time --- */
    :: atomic { !dead[c] && dead[1 - c] && !stale[1 - c] -> stale[1 - c] = true }
    :: atomic { !dead[c] && deaths > 0 ->
           deaths--; dead[c] = true; wake[c] = false; passing[c] = false;
           lock = lock && !has_lock; has_lock = false; doing = NOTHING; item = NOBODY;
           i = 1;
           do
           :: i < N ->
               if
               :: OF(c, i, HOLDS) -> state[i] = EXPIRED
               :: home[i] == c && state[i] != HOLDS && state[i] != EXPIRED && state[i] != DONE && state[i] != LEFT ->
                   state[i] = (holder == i -> EXPIRED : LEFT)
               :: else
               fi;
               i++
           :: else -> break
           od;
           i = 0 }
#ifdef POLL
    :: atomic { !dead[c] && !lock && row && IS_OPEN && doing == NOTHING && !IN_FLIGHT(c) && !ANY(c, LINED) && !wake[c] ->
           find_head();
           if
           :: h != NOBODY && home[h] == c -> wake[c] = true
           :: h != NOBODY && home[h] == IS_SQL -> told[h] = true
           :: else
           fi;
           h = NOBODY }
#endif
    od
}

/* A SQL user who waits: join_queue, LISTEN, acquire at once and at each notification, release or leave_queue. An acquire that finds
 * the row locked is tried again */
proctype User(byte i) {
#ifdef LEAVE_OUT_LATER_STATEMENT
    byte seen = NOBODY;
#endif
end:
    do
    :: state[i] == IDLE ->
        atomic { !lock -> lock = true; row = true };
        atomic { enqueue(i); state[i] = LINED; lock = false }
    :: state[i] == LINED && gone[i] || state[i] == QUEUED && gone[i] ->
#ifndef LEAVE_OUT_LOCK_TO_LEAVE
        atomic { !lock -> lock = true };
#endif
        atomic {
            ticket[i] = 0; state[i] = LEFT;
            if
#if !defined(LEAVE_OUT_LEAVE_WAKES) && !defined(LEAVE_OUT_LOCK_TO_LEAVE)
            :: IS_OPEN -> wake_head(IS_SQL)
#endif
            :: else
            fi;
#ifndef LEAVE_OUT_LOCK_TO_LEAVE
            lock = false
#endif
        }
    :: state[i] == LINED && !gone[i] ->
        atomic { SNAPSHOT told[i] = false };
        atomic { !lock -> lock = true };
        atomic { READ_QUEUE; decide(i);
                 if
#ifndef LEAVE_OUT_OPEN_WAKES
                 :: IS_OPEN -> find_head(); if :: h != i -> notify(h, false) :: else fi
#endif
                 :: else
                 fi;
                 h = NOBODY; lock = false }
    :: atomic { state[i] == QUEUED && told[i] && !gone[i] -> told[i] = false; state[i] = LINED }
    :: state[i] == HOLDS ->
        atomic { SNAPSHOT skip };
        atomic { !lock -> lock = true };
        atomic { READ_QUEUE;
                 if
                 :: holder == i -> holder = NOBODY; notify(h, false)
                 :: else
                 fi;
                 state[i] = DONE; h = NOBODY; lock = false }
    od
}

/* The SQL user who holds it at first. In REPEATABLE READ the queue is that of the transaction's begin */
proctype Holder() {
    byte seen = NOBODY;
    bool is_blind;

    if
    :: is_blind = true; atomic { find_head(); seen = h; h = NOBODY }
    :: is_blind = false; atomic { SNAPSHOT skip }
    fi;
    if
    :: atomic { !lock && state[0] == HOLDS -> lock = true };
       atomic {
           if
           :: is_blind ->
               notify(seen, false);
#ifndef LEAVE_OUT_EVERYBODY
               wake[0] = !dead[0]; wake[1] = !dead[1];
#endif
           :: else -> READ_QUEUE; notify(h, false)
           fi;
           holder = NOBODY; state[0] = DONE; seen = NOBODY; h = NOBODY; lock = false }
    :: atomic { state[0] == EXPIRED -> seen = NOBODY }
    fi
}

/* Callers that go away, holders that fall silent */
proctype World() {
end:
    do
    :: atomic { cancels > 0 && IS_WAITING(1) && !gone[1] -> gone[1] = true; cancels-- }
    :: atomic { cancels > 0 && IS_WAITING(2) && !gone[2] -> gone[2] = true; cancels-- }
    :: atomic { cancels > 0 && IS_WAITING(3) && !gone[3] -> gone[3] = true; cancels-- }
    :: atomic { expiries > 0 && holder != NOBODY && !lock && state[holder] == HOLDS -> state[holder] = EXPIRED; expiries-- }
    od
}

/* When nothing more can happen, nobody has been forgotten and nothing is left behind */
active proctype Judge() {
end:
    timeout ->
        assert(!lock);
        assert(holder == NOBODY || (dead[0] && dead[1]));
        assert(!IS_WAITING(1) && !IS_WAITING(2) && !IS_WAITING(3));
        assert(ticket[1] == 0 && ticket[2] == 0 && ticket[3] == 0)
}

init {
    atomic {
        home[0] = IS_SQL; home[1] = HOME1; home[2] = HOME2; home[3] = HOME3;
        state[0] = DONE; state[1] = IDLE; state[2] = IDLE; state[3] = IDLE;
        run Coordinator(IS_A);
        run Coordinator(IS_B);
#ifdef HOLDER
        holder = 0; row = true; state[0] = HOLDS;
        run Holder();
#endif
        if :: home[1] == IS_SQL -> run User(1) :: else fi;
        if :: home[2] == IS_SQL -> run User(2) :: else fi;
        if :: home[3] == IS_SQL -> run User(3) :: else fi;
        run World()
    }
}
