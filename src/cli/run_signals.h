/*
 * The signals that reach `leasehold run`, and whether its command has had them too.
 *
 * The command is in our process group, as if we were not there: Ctrl-C, `kill -- -GROUP` and timeout(1) reach both of
 * us, and systemd signals each process of a service. kill(1) with our number alone reaches us alone. A signal does not
 * tell which of these it was; two witnesses do, which take every signal and act on none. The first, started here, is in our
 * group as long as the command is not in another. The second is the supervisor, which has a session of its own.
 *
 *     both        each process was signalled: by a supervisor that is our ancestor, the command too;
 *                 by anybody else, by name (killall leasehold), it was not
 *     the first   our group was signalled, and the command if it is still in it
 *     none        we alone were
 *
 * A sender may need a moment for all of them. So a signal is gathered first, as often as it comes, and told to the
 * supervisor once, with what the first witness saw; the supervisor knows the rest, and passes it on or not.
 */
#ifndef LH_CLI_RUN_SIGNALS_H
#define LH_CLI_RUN_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/signalfd.h>
#include <sys/types.h>

#define LH_RUN_PASSED_ON 10

struct lh_run_signals {
    int file; /* readable: a signal came */
    /* Readable: the first witness got one; -1: no witness. */
    int witness;
    pid_t process; /* the witness */
    struct lh_run_gathered {
        int64_t since_us;    /* 0: no signal is gathered */
        int64_t in_group_us; /* time when the witness last got it */
        bool is_of_ancestor; /* the sender is one of our ancestors */
    } gathered[LH_RUN_PASSED_ON];
};

/* Reads signals from `file` from now on; ignores SIGTTOU, which restoring the terminal causes. *mask is the mask
   before. Returns false with errno. */
bool lh_run_signals_open(struct lh_run_signals *signals, sigset_t *mask);

/* Forks the first witness. The caller has no other threads. Returns false with errno. */
bool lh_run_witness_start(struct lh_run_signals *signals);
void lh_run_witness_end(struct lh_run_signals *signals);

/* Takes the next signal that came. Returns false if there is none. */
bool lh_run_signals_take(struct lh_run_signals *signals, struct signalfd_siginfo *told);

/* Gathers a signal, to be passed on unless the command has had it. */
void lh_run_signals_gather(struct lh_run_signals *signals, const struct signalfd_siginfo *told);

/* Sends the supervisor the signals that were gathered long enough. Returns in how many microseconds the next will
   have been; LH_RUN_GATHER_US: none is gathered. *has_stop: SIGTSTP was among them. */
int64_t lh_run_signals_pass_on(struct lh_run_signals *signals, int channel, bool *has_stop);

#endif
