/*
 * A request to hand a lease over, from its row to the holder: is it heard in the end, and by nobody else? The daemon has a copy of the
 * rows (src/lease/asked.c) and answers renewals from it. Notifications get lost, the daemon is killed, the lease may go on to another holder.
 * LEAVE_OUT_LOOK: the daemon reads when it is told, and not each second too. LEAVE_OUT_TOKEN: it finds a request by the scope alone.
 */
#define KILLS 2
#define LOSSES 2

byte token = 1;       /* of the lease that is held */
byte asked = 0;       /* the token whose holder is asked; 0: none. A row, which nothing but the end of the lease makes void. */
byte copy = 0;        /* the daemon's */
bool is_told = false; /* a notification is on its way */
bool is_up = true;
byte heard = 0;

active proctype Asker() {
    atomic { asked = token; is_told = true }
}

/* Holders take turns once: the first may give the lease back, heard or not. */
active proctype Holders() {
    do
    :: is_up && (copy == token) -> heard = token
#ifdef LEAVE_OUT_TOKEN
    :: is_up && copy > 0 -> assert(copy == token); heard = token
#endif
    :: token == 1 -> token = 2
    od
}

active proctype Daemon() {
    do
    :: is_up && is_told -> atomic { copy = asked; is_told = false }
#ifndef LEAVE_OUT_LOOK
    :: is_up && copy != asked -> copy = asked
#endif
    :: !is_up -> is_up = true
    od
}

active proctype Fate() {
    byte kills, losses;
    do
    :: kills < KILLS -> atomic { is_up = false; copy = 0; is_told = false; kills++ }
    :: losses < LOSSES && is_told -> is_told = false; losses++
    :: break
    od
}

/* Where nothing else can happen, time goes on: spin's fairness (-f) looks at no state without a step. */
active proctype Idler() {
    do
    :: token <= 2
    od
}

ltl is_heard_in_the_end { [] ((asked > 0) -> <> (heard == asked || token != asked)) }
