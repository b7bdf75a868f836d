/*
 * The ticks of one schedule, its workers, the daemon that passes by, an administrator, and the database's clock. README.md says which part of the code each
 * step stands for, and what each LEAVE_OUT_... leaves out.
 *
 * Time is not counted. The clock lets an instant, a deadline, a delay or a lease pass at any moment, so every order of them is tried; and it may step back.
 * The hook writes a tick in the transaction of its lease (tick_event.sql), so a tick that runs is here a lease that is held, and the reaper of one ends both.
 *
 * Scenarios (-D): WORKERS; KILLS of workers, STALLS in which one does not renew, UNHEARD answers, LOSSES of notifications, BACKS of the clock
 *                 CATCH_UP (NEVER, LAST or CATCH_UP_ALL), OVERLAP
 *                 PATIENT  no tick has a deadline         SWEEPER  a daemon passes by     POLL  workers also look by themselves
 *                 PAUSES, FOREVER  a pause that does not end                              RUNS  of run_schedule_now()
 *                 FORGETS  an ended tick goes after its time
 */
#define INSTANTS 2
#define TICKS 3        /* the last is for run_schedule_now() at a second that is no instant */
#define HAND INSTANTS
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#define CATCH_UP_MAX 1
#define NEVER 0        /* values of catch_up */
#define LAST 1
#define CATCH_UP_ALL 2
#define NOBODY 255

/* LOOK_AT: the only one that is checked */
#define ALL 0
#define ONE_HOLDER 1
#define ONCE 2
#define TOKENS_GROW 3
#define IN_TIME 4
#define OVERLAP_KEPT 5
#define ATTEMPTS_KEPT 6
#define PAUSE_KEPT 7
#define NEVER_SILENT 8
#define ONE_ROW 9
#define ONE_TICK 10
#define CATCH_UP_KEPT 11
#define EACH_ENDS 12
#define PROMISE(name, truth) assert((LOOK_AT != ALL && LOOK_AT != name) || (truth))

mtype = { NONE, DUE, RUNNING, DONE, FAILED, DEAD, MISSED, SKIPPED };
mtype = { IDLE, TAKEN, UNSURE, WORKS, GUARDED, KILLED, GONE };

/* The database: leasehold.tick, its scopes, leasehold.tick_slot, leasehold.schedule. */
mtype state[TICKS];
byte attempts[TICKS];
byte token[TICKS];
bool by_hand[TICKS];
bool is_locked[TICKS];    /* by a claim or a guard */
byte slot[OVERLAP];       /* the tick that runs in it */
bool slot_locked[OVERLAP];
byte made;                /* made_until: so many instants have had their rows */
bool paused;
bool is_writing;          /* the lock of the schedule's row */
byte last_token;

/* What the clock says. */
byte passed;              /* instants */
bool ready[TICKS];        /* next_try_at has passed */
bool late[TICKS];         /* claim_until has passed */
bool lapsed[TICKS];       /* the lease has expired */

/* Workers. */
mtype doing[WORKERS];
byte item[WORKERS];       /* its tick, as it believes */
byte place[WORKERS];      /* the slot that its claim has locked */
byte own[WORKERS];        /* its token */
bool awake[WORKERS];
byte alarm[WORKERS];      /* what it sleeps until: bits as below */
#define ON_READY(t) (1 << (t))
#define ON_LAPSE(t) (1 << (TICKS + (t)))
#define ON_INSTANT (1 << (2 * TICKS))
byte kills = KILLS, stalls = STALLS, unheard = UNHEARD, losses = LOSSES, backs = BACKS, pauses = PAUSES, runs = RUNS, forgets = FORGETS;

/* What was true, for the assertions. */
bool is_valid[TICKS];     /* the lease of the last claim: not expired by the clock, not given back by its own worker */
bool ran[TICKS];          /* the work was committed */
bool had_row[INSTANTS];
bool in_pause[INSTANTS];  /* it passed in a pause */

#define HAS_ENDED(t) (state[t] == DONE || state[t] == DEAD || state[t] == MISSED || state[t] == SKIPPED)
#define WAITS(t) ((state[t] == DUE && !late[t]) || state[t] == FAILED)
#ifdef LEAVE_OUT_HAND
#define IS_LET(t) (!paused)
#else
#define IS_LET(t) (by_hand[t] || !paused)
#endif
#ifdef LEAVE_OUT_BACKOFF
#define MAY_RUN(t) (WAITS(t) && IS_LET(t))
#else
#define MAY_RUN(t) (WAITS(t) && IS_LET(t) && ready[t])
#endif

#define IS_TO_MISS(t) (state[t] == DUE && late[t] && !is_locked[t])
#define IS_WAITING(t) (state[t] == DUE && !by_hand[t] && !is_locked[t])

byte k, n, found, free;   /* of the step that runs: each is atomic */

inline tell_workers() {
    k = 0;
    do
    :: k < WORKERS ->
        if
        :: awake[k] = true
        :: losses > 0 && !awake[k] -> losses--
        fi;
        k++
    :: else -> break
    od;
    k = 0
}

/* until_tick() has come for those who sleep until this */
inline ring(event) {
    k = 0;
    do
    :: k < WORKERS ->
        if
        :: alarm[k] & (event) -> awake[k] = true; alarm[k] = 0
        :: else
        fi;
        k++
    :: else -> break
    od;
    k = 0
}

/* end_tick(): of the claim with this token */
inline end_tick(t, its_token, is_done) {
    if
#ifdef LEAVE_OUT_OWN_END
    :: state[t] == RUNNING ->
#else
    :: state[t] == RUNNING && token[t] == its_token ->
#endif
#ifdef LEAVE_OUT_ATTEMPTS
        state[t] = (is_done -> DONE : FAILED);
#else
        state[t] = (is_done -> DONE : (attempts[t] < ATTEMPTS -> FAILED : DEAD));
#endif
        ready[t] = false; late[t] = false; lapsed[t] = false;
#ifndef LEAVE_OUT_FREE
        n = 0;
        do
        :: n < OVERLAP -> slot[n] = (slot[n] == t -> NOBODY : slot[n]); n++
        :: else -> break
        od;
        n = 0;
#endif
#ifndef LEAVE_OUT_TELL
        tell_workers()
#endif
    :: else
    fi
}

#ifdef LEAVE_OUT_EXPIRY
#define IS_TO_REAP(t) (state[t] == RUNNING && !is_locked[t])
#elif defined(LEAVE_OUT_REAP)
#define IS_TO_REAP(t) false
#elif defined(LEAVE_OUT_GUARD_LOCK)
#define IS_TO_REAP(t) (state[t] == RUNNING && lapsed[t])
#else
#define IS_TO_REAP(t) (state[t] == RUNNING && lapsed[t] && !is_locked[t])
#endif

inline reap() {
    found = 0;
    do
    :: found < TICKS ->
        if
        :: IS_TO_REAP(found) -> end_tick(found, token[found], false)
        :: else
        fi;
        found++
    :: else -> break
    od;
    found = 0
}

/* write_ticks(), miss_ticks(): of the instants between, of a schedule that was read so */
inline make_ticks(after, until, is_paused) {
    found = after;
    do
    :: found < until ->
        PROMISE(ONE_ROW, state[found] != NONE || !had_row[found]);
        if
        :: state[found] != NONE
        :: state[found] == NONE && is_paused -> PROMISE(PAUSE_KEPT, in_pause[found]); state[found] = SKIPPED
        :: state[found] == NONE && !is_paused && CATCH_UP == LAST && found + 1 < until ->
#ifndef LEAVE_OUT_ROWS
            state[found] = SKIPPED
#else
            skip
#endif
#if CATCH_UP == NEVER || !defined(PATIENT)
        :: state[found] == NONE && !is_paused && (CATCH_UP != LAST || found + 1 == until) -> state[found] = MISSED /* it is found too late */
#endif
        :: state[found] == NONE && !is_paused && (CATCH_UP != LAST || found + 1 == until) -> PROMISE(PAUSE_KEPT, !in_pause[found]); state[found] = DUE
        fi;
        had_row[found] = state[found] != NONE;
        found++
    :: else -> break
    od;
#ifdef LEAVE_OUT_BACK
    made = until;
#else
    made = (until > after -> until : after);
#endif
    found = 0; n = 0;
    do
    :: found < TICKS ->
        PROMISE(NEVER_SILENT, found >= made || had_row[found] || found == HAND);
        if
#ifndef LEAVE_OUT_MISS
        :: IS_TO_MISS(found) -> state[found] = (is_paused -> SKIPPED : MISSED); ready[found] = false; late[found] = false
#endif
        :: else
        fi;
        n = n + (state[found] == DUE && !by_hand[found]);
        found++
    :: else -> break
    od;
    /* Those that too many wait behind */
    found = 0;
    do
    :: found < TICKS && CATCH_UP == CATCH_UP_ALL && n > CATCH_UP_MAX ->
        if
        :: state[found] == DUE && !by_hand[found] ->
            n--;
            if
#ifndef LEAVE_OUT_DISPLACE
            :: !is_locked[found] -> state[found] = MISSED; ready[found] = false; late[found] = false
#endif
            :: else
            fi
        :: else
        fi;
        found++
    :: else -> break
    od;
    PROMISE(CATCH_UP_KEPT, CATCH_UP != CATCH_UP_ALL || !(IS_WAITING(0) && IS_WAITING(1)));
    found = 0; n = 0
}

#define HAS_TO_MAKE (made < passed || IS_TO_MISS(0) || IS_TO_MISS(1) || IS_TO_MISS(2))

/* found = the oldest tick that may run and that no claim has; free = a slot */
inline look() {
    found = 0;
    do
#ifdef LEAVE_OUT_LOCK
    :: found < TICKS && !MAY_RUN(found) -> found++
#else
    :: found < TICKS && !(MAY_RUN(found) && !is_locked[found]) -> found++
#endif
    :: else -> break
    od;
    free = 0;
    do
#ifdef LEAVE_OUT_SLOT
    :: free < OVERLAP && slot[free] != NOBODY -> free++
#else
    :: free < OVERLAP && !(slot[free] == NOBODY && !slot_locked[free]) -> free++
#endif
    :: else -> break
    od
}

/* wait_for_tick() */
inline sleep(w) {
    found = 0; n = 0; free = 0;
    do
    :: free < OVERLAP && slot[free] != NOBODY -> free++
    :: else -> break
    od;
    do
    :: found < TICKS ->
        if
        :: WAITS(found) && IS_LET(found) && free < OVERLAP -> awake[w] = awake[w] || ready[found]; n = n | ON_READY(found)
#ifndef LEAVE_OUT_UNTIL_EXPIRY
        :: state[found] == RUNNING && (IS_LET(found) || free == OVERLAP) -> awake[w] = awake[w] || lapsed[found]; n = n | ON_LAPSE(found)
#endif
        :: else
        fi;
        found++
    :: else -> break
    od;
    if
    :: !paused && made < INSTANTS && free < OVERLAP -> awake[w] = awake[w] || made < passed; n = n | ON_INSTANT
    :: else
    fi;
    alarm[w] = (awake[w] -> 0 : n);
    found = 0; n = 0; free = 0
}

inline forget_claim(w) {
    doing[w] = IDLE; item[w] = NOBODY; own[w] = 0; awake[w] = true
}

inline give_locks_back(w) {
    is_locked[item[w]] = false; slot_locked[place[w]] = false; place[w] = 0
}

/* begin_tick() */
inline begin_tick(t, w) {
    PROMISE(ONE_HOLDER, !is_valid[t]);
    PROMISE(ONCE, !ran[t] && (state[t] == DUE || state[t] == FAILED));
    PROMISE(IN_TIME, ready[t] && (state[t] == FAILED || !late[t]));
    PROMISE(PAUSE_KEPT, by_hand[t] || !paused);
    PROMISE(OVERLAP_KEPT, slot[place[w]] == NOBODY);
    PROMISE(ATTEMPTS_KEPT, attempts[t] < ATTEMPTS);
#ifndef LEAVE_OUT_DRAW
    last_token++; own[w] = last_token;
#endif
    PROMISE(TOKENS_GROW, own[w] > token[t]);
    token[t] = own[w];
    state[t] = RUNNING;
    attempts[t] = attempts[t] + 1;
    ready[t] = false; late[t] = false;
    slot[place[w]] = t;
    is_valid[t] = true
}

#if defined(LEAVE_OUT_LATE)
#define MAY_STILL_RUN(t) (IS_LET(t))
#elif defined(LEAVE_OUT_PAUSE)
#define MAY_STILL_RUN(t) (state[t] == FAILED || !late[t])
#elif defined(LEAVE_OUT_LOCK)
#define MAY_STILL_RUN(t) true
#else
#define MAY_STILL_RUN(t) MAY_RUN(t)
#endif

#define HAS_IT(w) (state[item[w]] == RUNNING && token[item[w]] == own[w])

/* An expired lease that is not reaped yet is renewed as any other */
inline renew(w) {
    lapsed[item[w]] = false; is_valid[item[w]] = true
}

/* guard(), the work, release_ok: one transaction */
inline commit_work(w) {
    PROMISE(ONCE, HAS_IT(w) && !ran[item[w]]);
    ran[item[w]] = true
}

proctype Worker(byte w) {
end:
    do
    :: atomic { doing[w] == IDLE && awake[w] ->
           awake[w] = false; alarm[w] = 0;
#ifdef LEAVE_OUT_DRAW
           if :: own[w] == 0 -> last_token++; own[w] = last_token :: else fi;
#endif
           reap();
           if :: HAS_TO_MAKE && !is_writing -> make_ticks(made, passed, paused) :: else fi;
           look();
           if
           :: found < TICKS && free < OVERLAP ->
               PROMISE(ONE_TICK, item[w] == NOBODY || state[item[w]] != RUNNING || token[item[w]] != own[w]);
               item[w] = found; place[w] = free; is_locked[found] = true; slot_locked[free] = true; doing[w] = TAKEN; found = 0; free = 0
           :: else -> sleep(w)
           fi }
    :: atomic { doing[w] == TAKEN ->
           if
           :: MAY_STILL_RUN(item[w]) ->
               begin_tick(item[w], w);
               give_locks_back(w);
               if
               :: doing[w] = WORKS
               :: unheard > 0 -> unheard--; doing[w] = UNSURE
               fi
           :: else -> give_locks_back(w); forget_claim(w)
           fi }
    /* The claim is repeated with its lease key */
    :: atomic { doing[w] == UNSURE ->
#ifdef LEAVE_OUT_KEY
           doing[w] = IDLE; awake[w] = true
#else
           if
           :: HAS_IT(w) -> renew(w); doing[w] = WORKS
           :: else -> forget_claim(w)
           fi
#endif
           }
#ifdef LEAVE_OUT_GUARD
    :: atomic { doing[w] == WORKS && !is_locked[item[w]] ->
           commit_work(w); is_valid[item[w]] = is_valid[item[w]] && token[item[w]] != own[w]; end_tick(item[w], own[w], true);
           if :: unheard > 0 -> unheard-- :: forget_claim(w) fi }
#else
    :: atomic { doing[w] == WORKS && !is_locked[item[w]] ->
           if
           :: HAS_IT(w) && !lapsed[item[w]] -> is_locked[item[w]] = true; doing[w] = GUARDED
           :: else -> forget_claim(w) /* lease_lost */
           fi }
#endif
    :: atomic { doing[w] == GUARDED ->
           commit_work(w);
           is_locked[item[w]] = false; is_valid[item[w]] = false; end_tick(item[w], own[w], true);
           if
           :: unheard > 0 -> unheard--; doing[w] = WORKS /* it tries again */
           :: forget_claim(w)
           fi }
    :: atomic { doing[w] == WORKS && !is_locked[item[w]] -> /* release_fail */
           is_valid[item[w]] = is_valid[item[w]] && token[item[w]] != own[w]; end_tick(item[w], own[w], false); forget_claim(w) }
    :: atomic { doing[w] == WORKS && HAS_IT(w) && lapsed[item[w]] && !is_locked[item[w]] -> renew(w) }
    :: atomic { kills > 0 && doing[w] != KILLED && doing[w] != GONE ->
           kills--;
           if
           :: doing[w] == TAKEN -> give_locks_back(w)
           :: doing[w] == GUARDED -> is_locked[item[w]] = false
           :: else
           fi;
           forget_claim(w); awake[w] = false; alarm[w] = 0;
           if
           :: doing[w] = KILLED
           :: w > 0 -> doing[w] = GONE /* for good */
           fi }
    :: atomic { doing[w] == KILLED -> doing[w] = IDLE; awake[w] = true }
#if defined(POLL) && !defined(LEAVE_OUT_LOOKS)
    :: atomic { doing[w] == IDLE && !awake[w] && (HAS_TO_MAKE || IS_TO_REAP(0) || IS_TO_REAP(1) || IS_TO_REAP(2) ||
                MAY_RUN(0) || MAY_RUN(1) || MAY_RUN(2)) -> awake[w] = true }
#endif
    od
}

#ifdef SWEEPER
/* coordinator_tick(): once a second */
proctype Sweeper() {
    byte after, until;
    bool is_paused, is_at_it;
end:
    do
    :: atomic { IS_TO_REAP(0) || IS_TO_REAP(1) || IS_TO_REAP(2) -> reap() }
    :: atomic { !is_at_it && HAS_TO_MAKE && !is_writing ->
           is_at_it = true; after = made; until = passed; is_paused = paused;
#ifndef LEAVE_OUT_ONE_WRITER
           is_writing = true
#endif
           }
    :: atomic { is_at_it -> make_ticks(after, until, is_paused); is_writing = false; is_at_it = false; after = 0; until = 0; is_paused = false }
    od
}
#endif

/* pause_schedule(), run_schedule_now(): each first writes what has passed */
proctype Administrator() {
end:
    do
    :: atomic { !is_writing && pauses > 0 && !paused ->
           pauses--;
#ifndef LEAVE_OUT_WRITE_FIRST
           make_ticks(made, passed, paused);
#endif
           paused = true; tell_workers() }
#ifndef FOREVER
    :: atomic { !is_writing && paused ->
#ifndef LEAVE_OUT_WRITE_FIRST
           make_ticks(made, passed, paused);
#endif
           paused = false; tell_workers() }
#endif
    :: atomic { !is_writing && runs > 0 ->
           runs--;
           make_ticks(made, passed, paused);
           if
           :: passed > 0 -> found = passed - 1 /* this second is that instant's */
           :: found = HAND
           fi;
           if
           :: state[found] == DONE || state[found] == DEAD || (state[found] == NONE && found < made) -> found = HAND /* or forgotten */
           :: else
           fi;
           if
           :: (state[found] == NONE || state[found] == DUE || state[found] == MISSED || state[found] == SKIPPED) && !is_locked[found] ->
               state[found] = DUE; by_hand[found] = true; ready[found] = true; late[found] = false; tell_workers()
           :: else
           fi;
           found = 0 }
    od
}

#define LIVES(w, t) ((doing[w] == WORKS || doing[w] == GUARDED) && item[w] == t && own[w] == token[t])
#if WORKERS == 2
#define IS_RENEWED(t) (LIVES(0, t) || LIVES(1, t))
#else
#define IS_RENEWED(t) LIVES(0, t)
#endif

inline pass_of(t) {
    if
    :: (state[t] == DUE || state[t] == FAILED) && !ready[t] -> ready[t] = true; ring(ON_READY(t))
#ifndef PATIENT
    :: state[t] == DUE && !late[t] -> late[t] = true
#endif
    :: state[t] == RUNNING && !lapsed[t] && !IS_RENEWED(t) -> lapsed[t] = true; is_valid[t] = false; ring(ON_LAPSE(t))
    :: state[t] == RUNNING && !lapsed[t] && IS_RENEWED(t) && stalls > 0 -> stalls--; lapsed[t] = true; is_valid[t] = false; ring(ON_LAPSE(t))
    :: HAS_ENDED(t) && forgets > 0 && t < INSTANTS -> forgets--; state[t] = NONE; attempts[t] = 0; token[t] = 0; by_hand[t] = false
    fi
}

proctype Clock() {
end:
    do
    :: atomic { passed < INSTANTS -> in_pause[passed] = paused; passed++; ring(ON_INSTANT) }
    :: atomic { pass_of(0) }
    :: atomic { pass_of(1) }
    :: atomic { pass_of(2) }
    :: atomic { backs > 0 ->
           backs--;
           passed = (passed > 0 -> passed - 1 : 0);
           found = 0;
           do
           :: found < TICKS ->
               is_valid[found] = is_valid[found] || lapsed[found];
               ready[found] = false; late[found] = false; lapsed[found] = false;
               found++
           :: else -> break
           od;
           found = 0 }
    od
}

init {
    atomic {
        k = 0;
        do
        :: k < TICKS -> state[k] = NONE; k++
        :: else -> break
        od;
        k = 0;
        do
        :: k < OVERLAP -> slot[k] = NOBODY; k++
        :: else -> break
        od;
        k = 0;
        do
#ifdef NO_WORKER
        :: k < WORKERS -> doing[k] = GONE; item[k] = NOBODY; awake[k] = true; k++
#else
        :: k < WORKERS -> doing[k] = IDLE; item[k] = NOBODY; awake[k] = true; run Worker(k); k++
#endif
        :: else -> break
        od;
        k = 0;
#ifdef SWEEPER
        run Sweeper();
#endif
        run Administrator();
        run Clock()
    }
}

#ifdef FOREVER
#define IS_OVER(t) (!by_hand[t] || HAS_ENDED(t))
#else
#define IS_OVER(t) (HAS_ENDED(t) || (state[t] == NONE && (t == HAND || had_row[t])))
#endif
#define ALL_OVER (passed == INSTANTS && IS_OVER(0) && IS_OVER(1) && IS_OVER(2))

#ifdef IN_THE_END
/* spin's weak fairness does not look at states in which nothing can happen: here something can. */
active proctype Idler() {
    do
    :: passed <= INSTANTS
    od
}

ltl every_tick_ends { <> [] ALL_OVER }
#else
/* When nothing more can happen, each tick has ended */
active proctype Judge() {
end:
    timeout -> PROMISE(EACH_ENDS, ALL_OVER)
}
#endif
