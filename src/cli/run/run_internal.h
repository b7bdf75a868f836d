/* The outer process of `leasehold run`: its leases, its signals and terminal, and one run of it. run.c describes how it goes. */
#ifndef LH_CLI_RUN_INTERNAL_H
#define LH_CLI_RUN_INTERNAL_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/signalfd.h>
#include <sys/types.h>
#include <termios.h>

#include "cli/args.h"
#include "cli/cli.h"
#include "cli/holder/acquire_options.h"
#include "cli/run/supervisor_internal.h"
#include "leasehold.h"

/* The scopes that `leasehold run` holds while its command runs: NAMESPACE KEY, and each --also NS:KEY, in their
   order. */
struct lh_run_scopes {
    size_t count;
    struct lh_run_scope {
        const char *ns;
        const char *key;
        /* Memory of `ns` and `key` of --also; NULL: they are words of the command line. */
        char *text;
    } list[LH_ACQUIRE_ALL_MAX];
};

/* Takes the scopes; `scopes` is zero-initialised before. Finish it in any case. Borrows from `args`.
   LH_INVALID_ARGUMENT: `error` names the word. */
enum lh_status lh_run_scopes_take(struct lh_run_scopes *scopes, const struct lh_args *args, struct lh_error *error);

/* A request to hand a lease over, heard and not looked at. A lease has one open at a time, so they are few. */
struct lh_run_request {
    struct lh_run_request *next;
    struct lh_lease *lease;
    char *by, *principal, *reason;
};
void lh_run_request_destroy(struct lh_run_request *request);

/*
 * The lease of `leasehold run`, or the leases with --also: libleasehold on a thread of its own, and a descriptor that
 * is readable when it has news. The functions here are the main thread's.
 */
struct lh_run_lease {
    const struct lh_cli *cli;
    const struct lh_cli_acquire *asked;
    const struct lh_run_scopes *scopes;
    int wake; /* readable: look again */
    bool tells_waiting;
    bool hears_requests; /* to hand over */
    const char *refusal; /* each of them is refused with these words; NULL: they go into `requests` */
    struct lh_client *client;
    struct lh_request *request; /* while it is acquired */

    pthread_mutex_t mutex; /* guards the members that the library's thread sets */
    bool is_answered;
    enum lh_status status;
    struct lh_error error;
    struct lh_lease *leases[LH_ACQUIRE_ALL_MAX]; /* leases of the scopes; NULL: not granted */
    enum lh_lost_reason lost;                    /* reason of the first loss; 0: no loss */
    char lost_words[256];
    struct lh_run_request *requests; /* the oldest first */
    char lost_name[400];             /* "lease", with several scopes the name of the lost one */
    int status_file;                 /* given by --status-fd; -1: none */
    char told[512];                  /* last line printed about the holder in the way */
};

/*
 * --status-fd. The first takes the option: -1 without it. The second writes a line: the event (waiting, granted, refused, lost, asked),
 * a member of it, and words; nothing to -1.
 */
enum lh_status lh_run_status_take(int *file, const struct lh_args *args, struct lh_error *error);
void lh_run_status_tell(int file, const char *event, const char *name, const char *value, const char *message);

/* Acquires all scopes. A lease counts as lost `grace_us` before its deadline. Not DONE: an error was printed. */
enum lh_exit lh_run_lease_ask(struct lh_run_lease *lease, const struct lh_cli *cli, const struct lh_cli_acquire *asked,
                              const struct lh_run_scopes *scopes, int64_t grace_us);

/* Clears `wake`. Call it before looking. */
void lh_run_lease_look(struct lh_run_lease *lease);
bool lh_run_lease_is_answered(struct lh_run_lease *lease);

/* Returns true if any lease is lost. */
bool lh_run_lease_is_lost(struct lh_run_lease *lease);

/* Tell, of granted leases, whether all are held as far as this process knows, and the earliest of their deadlines. */
bool lh_run_lease_is_held(const struct lh_run_lease *lease);
int64_t lh_run_lease_deadline_us(const struct lh_run_lease *lease);

/* Takes the next request to hand over, which is the caller's; NULL: there is none. */
struct lh_run_request *lh_run_lease_next_request(struct lh_run_lease *lease);

/* Refuses to hand one of the leases over. Returns at once; prints an error should that fail. Any thread. */
void lh_run_lease_refuse(struct lh_run_lease *lease, struct lh_lease *which, const char *words);

/* Leaves the queue. The answer follows. */
void lh_run_lease_cancel(struct lh_run_lease *lease);

/* Returns DONE, or prints an error and returns the exit status. Call it after the answer. */
enum lh_exit lh_run_lease_verdict(struct lh_run_lease *lease);

/* Releases all leases: as a success, or with the text of a failure. Prints errors. Returns DONE, LOST, or the error
   of the first that could not be released. */
enum lh_exit lh_run_lease_release(struct lh_run_lease *lease, const char *failure);

/* Releases after a loss, for the next waiters, silently, within `timeout_us`. */
void lh_run_lease_abandon(struct lh_run_lease *lease, const char *failure, int64_t timeout_us);

void lh_run_lease_finish(struct lh_run_lease *lease);

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

/* Gathers a signal, to be passed on unless the command has had it. */
void lh_run_signals_gather(struct lh_run_signals *signals, const struct signalfd_siginfo *told);

/* Sends the supervisor the signals that were gathered long enough. Returns in how many microseconds the next will
   have been; LH_RUN_GATHER_US: none is gathered. *has_stop: SIGTSTP was among them. */
int64_t lh_run_signals_pass_on(struct lh_run_signals *signals, int channel, bool *has_stop);

/*
 * Restores the terminal after the command. The command is in the process group of `leasehold run`, so it reads the
 * terminal and gets Ctrl-C and Ctrl-Z from the kernel. A shell or an editor sets terminal modes and a foreground process
 * group of its own; when it is killed, these are set back here.
 */
struct lh_run_terminal {
    int file; /* -1: there is no terminal, or it is not ours now */
    struct termios modes;
};

void lh_run_terminal_remember(struct lh_run_terminal *terminal);

/* Restores. Call it with SIGTTOU blocked. Takes nothing from a process group that lives: it may be the user's shell,
   and we in its background. */
void lh_run_terminal_restore(const struct lh_run_terminal *terminal);

/*
 * `leasehold run --terraform`: Terraform's and OpenTofu's `http` backend on loopback, for the command alone.
 *
 * The lease of the run is the lock: its holder may lock the state any number of times, and no other run gets that far.
 * So a killed run leaves no lock behind: its lease ends by its deadline. The state is Terraform's own affair, or a file
 * of ours, which is written while the lease is held and not after.
 *
 * Protocol: https://developer.hashicorp.com/terraform/language/backend/http. LOCK is sent as PUT and UNLOCK as DELETE,
 * which the backend lets its server choose.
 */

struct lh_terraform;

/*
 * Binds a port, and sets TF_HTTP_* in this process's environment: the path in them is random, and is the password. Call
 * it before the first fork. `state`: the directory with terraform.tfstate; NULL: the state is elsewhere. Returns NULL
 * if an error was printed.
 */
struct lh_terraform *lh_terraform_open(const char *state);

/* Serves on a thread of its own while `lease` is held. Returns false with errno if there is no thread. */
bool lh_terraform_start(struct lh_terraform *terraform, struct lh_lease *lease);
void lh_terraform_stop(struct lh_terraform *terraform); /* does nothing before a start */
void lh_terraform_close(struct lh_terraform *terraform);

/* --when-asked and --preferred. */
struct lh_run_when_asked {
    enum {
        LH_RUN_ASKED_NOTHING,
        LH_RUN_ASKED_SIGNAL,
        LH_RUN_ASKED_STOP,
        LH_RUN_ASKED_REFUSE,
        LH_RUN_ASKED_COMMAND,
    } kind;
    int signal;
    const char *command;
    const char *refusal;
    pid_t process;          /* COMMAND; 0: it does not run */
    struct lh_lease *lease; /* the lease of its request */
    bool is_to_stop;        /* the supervisor is to be sent LH_RUN_STOP */
    bool has_stopped;       /* LH_RUN_STOP was sent: the lease is handed over */
};

/* Takes the options. Borrows from `args`. LH_INVALID_ARGUMENT: `error` names the word. */
enum lh_status lh_run_when_asked_take(struct lh_run_when_asked *when, const struct lh_args *args,
                                      struct lh_error *error);

struct lh_run;

/* Acts on requests that were heard, and on COMMAND's end. Call it on each turn of lh_run_watch. */
void lh_run_asked_look(struct lh_run *run);
void lh_run_asked_finish(struct lh_run *run); /* kills a COMMAND that still runs */

/* One run of `leasehold run`, and its signals. run.c describes how it goes. */
struct lh_run {
    struct lh_cli *cli;
    struct lh_cli_acquire asked;
    struct lh_run_scopes scopes;
    struct lh_run_schedule schedule;
    struct lh_run_when_asked when_asked;
    int own_status; /* exit status of -E, instead of 3 and 4; -1: not given */
    bool repeats;
    bool runs_ticks; /* --schedule: each round has the tick in `values` */
    int status_file; /* given by --status-fd; -1: none */
    struct lh_run_plan plan;
    char **argv;
    struct lh_run_values *values;   /* the plan's */
    struct lh_terraform *terraform; /* NULL: without --terraform */

    struct lh_run_lease lease;
    struct lh_run_terminal terminal;
    pid_t supervisor;
    int channel;
    struct lh_run_signals signals;
    int64_t told_us; /* last deadline sent to the supervisor */
    /* The longest time in which this process did not run, though it wanted to: stopped, or suspended. */
    int64_t pause_us;

    bool is_stopping;            /* a signal ended this run: no round follows */
    int interrupt;               /* the signal that ended the wait for the lease */
    bool has_terminal_interrupt; /* Ctrl-C, which the command has had too */
    bool was_lost_told;
    bool has_ended;
    bool was_late;
    bool was_abandoned; /* the supervisor is gone, and sent no end */
    int status;         /* the command's wait status */
};

/* Takes the arguments; cli and values are set before. LH_INVALID_ARGUMENT: `error` says what is wrong. */
enum lh_status lh_run_arguments_take(struct lh_run *run, struct lh_error *error);
extern const struct lh_option lh_run_options[];

/*
 * --schedule: waits for a tick of the schedule, whose name stands where the namespace does, and claims it for the lease key
 * of this round, which lh_run_lease_ask then finds held. DONE: the tick is in `values`. Any other: an error was printed, or
 * a signal came. Call it while there is neither a supervisor nor a thread.
 */
enum lh_exit lh_run_tick_claim(struct lh_run *run);

/* Takes signals: before the leases they end the wait; later they are passed on. */
void lh_run_take_signals(struct lh_run *run);

/* Watches, with the leases, from the start of the command until no process of it is left. */
void lh_run_watch(struct lh_run *run);

#endif
