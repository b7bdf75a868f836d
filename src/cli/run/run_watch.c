/* While the command runs: its signals, its deadline, its end. */
#include "cli/run/run_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/error.h"
#include "cli/lease_text.h"
#include "cli/run/supervisor_internal.h"

#define TICK_MIN_US (5 * LH_US_PER_MS)
#define TICK_MAX_US (250 * LH_US_PER_MS)
#define TICKS_A_DURATION 50 /* the library renews by itself; how often to look whether it has */

/* --- signals --- */

static void stop_ourselves(void)
{
    sigset_t stop;

    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    raise(SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &stop, NULL); /* here we stop, and here we go on */
    sigprocmask(SIG_BLOCK, &stop, NULL);
}

static void on_signal(struct lh_run *run, const struct signalfd_siginfo *told)
{
    int number = (int)told->ssi_signo;
    bool is_end = number == SIGHUP || number == SIGINT || number == SIGQUIT || number == SIGTERM;
    bool is_of_terminal = told->ssi_code == SI_KERNEL; /* Ctrl-C, Ctrl-Z */

    run->is_stopping |= is_end;
    if (run->told_us == 0) {
        if (is_end) {
            run->interrupt = number;
            lh_run_lease_cancel(&run->lease);
        }
    } else if (number != SIGTSTP || !is_of_terminal) {
        lh_run_signals_gather(&run->signals, told);
    }
    run->has_terminal_interrupt |= run->told_us != 0 && number == SIGINT && is_of_terminal;
    if (number == SIGTSTP && (run->told_us == 0 || is_of_terminal))
        stop_ourselves();
}

void lh_run_take_signals(struct lh_run *run)
{
    struct signalfd_siginfo told;

    while (read(run->signals.file, &told, sizeof(told)) == sizeof(told))
        on_signal(run, &told);
}

/* Returns when to look again. */
static int64_t pass_signals_on(struct lh_run *run)
{
    bool has_stop;
    int64_t next_us;

    lh_run_take_signals(run);
    next_us = lh_run_signals_pass_on(&run->signals, run->channel, &has_stop);
    if (has_stop)
        stop_ourselves();
    return next_us;
}

/* --- while the command runs --- */

static void on_message(struct lh_run *run, const struct lh_run_message *message)
{
    const char *plural = message->number == 1 ? "" : "es";

    if (message->kind == LH_RUN_NOT_EXECUTED) {
        lh_error_print("cannot run %s: %s", run->argv[0], strerror(message->number));
    } else if (message->kind == LH_RUN_LEFT) {
        lh_error_print("the command left %d process%s behind, to be ended: %s%s", (int)message->number, plural,
                       message->names,
                       run->plan.keeps_detached ? "" : "; --keep-detached leaves those with a session of their own");
    } else if (message->kind == LH_RUN_DENIED) {
        lh_error_print(
            "%d process%s of the command cannot be ended, another user owns %s: %s; should the lease be lost, %s on",
            (int)message->number, plural, message->number == 1 ? "it" : "them", message->names,
            message->number == 1 ? "it goes" : "they go");
    } else if (message->kind == LH_RUN_ENDED) {
        run->has_ended = true;
        run->status = message->number;
        run->was_late = message->is_late;
    }
}

static void take_messages(struct lh_run *run)
{
    struct lh_run_message message;
    ssize_t size;

    while (!run->has_ended) {
        size = recv(run->channel, &message, sizeof(message), MSG_DONTWAIT);
        if (size == sizeof(message)) {
            on_message(run, &message);
        } else if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        } else {
            run->has_ended = run->was_abandoned = true;
        }
    }
}

static void tell_deadline(struct lh_run *run)
{
    struct lh_run_message message = {.kind = LH_RUN_DEADLINE, .deadline_us = lh_run_lease_deadline_us(&run->lease)};

    if (lh_run_lease_is_lost(&run->lease)) {
        message.kind = LH_RUN_LOST;
        if (!run->was_lost_told)
            run->was_lost_told = lh_run_send(run->channel, &message);
    } else if (message.deadline_us > run->told_us && lh_run_send(run->channel, &message)) {
        run->told_us = message.deadline_us;
    }
}

/* The supervisor kills at deadline - margin. If half of the margin is gone too, it was stopped. */
static int64_t supervisor_left_us(const struct lh_run *run)
{
    return run->told_us - run->schedule.margin_us / 2 - lh_clock_us();
}

static int tick_ms(const struct lh_run *run, int64_t next_signal_us)
{
    int64_t tick_us = run->asked.duration_us / TICKS_A_DURATION, left_us = supervisor_left_us(run);

    if (tick_us > next_signal_us)
        tick_us = next_signal_us;
    if (tick_us > TICK_MAX_US)
        tick_us = TICK_MAX_US;
    if (tick_us > left_us)
        tick_us = left_us;
    return (int)((tick_us < TICK_MIN_US ? TICK_MIN_US : tick_us) / LH_US_PER_MS);
}

static void let_go_of_files(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (null < 0)
        return;
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    close(null);
}

/* Of the first lease. Returns the lowest; 0: there is none. */
static int32_t take_slots(struct lh_run *run)
{
    struct lh_run_values *values = run->plan.values;
    size_t count;
    const int32_t *slots = lh_lease_slots(run->lease.leases[0], &count);
    const char *text;
    struct lh_arena arena = {0};

    values->slots[0] = '\0';
    if (count == 0)
        return 0;
    text = lh_slots_text(slots, count, &arena);
    if (strlen(text) < sizeof(values->slots))
        strcpy(values->slots, text);
    else
        lh_error_print("%zu slots do not fit in an environment variable: LEASEHOLD_SLOTS is not set", count);
    lh_arena_finish(&arena);
    return slots[0];
}

static void take_tokens(struct lh_run *run)
{
    char *tokens = run->plan.values->tokens;
    size_t used = 0;

    tokens[0] = '\0';
    for (size_t i = 0; run->scopes.count > 1 && i < run->scopes.count; i++)
        used += (size_t)sprintf(tokens + used, "%s%" PRId64, i > 0 ? "," : "", lh_lease_token(run->lease.leases[i]));
}

void lh_run_watch(struct lh_run *run)
{
    struct lh_run_message message = {.kind = LH_RUN_START,
                                     .deadline_us = lh_run_lease_deadline_us(&run->lease),
                                     .token = lh_lease_token(run->lease.leases[0]),
                                     .slot = take_slots(run)};

    take_tokens(run);
    run->told_us = message.deadline_us;
    if (!lh_run_send(run->channel, &message))
        run->has_ended = run->was_abandoned = true;
    kill(run->supervisor, SIGCONT); /* it was of our group until now, and may have been stopped with us */
    if (!run->repeats)              /* the next round needs them */
        let_go_of_files();
    while (!run->has_ended) {
        int64_t turn_us = lh_clock_us();
        struct pollfd polled[] = {
            {.fd = run->channel, .events = POLLIN},
            {.fd = run->signals.file, .events = POLLIN},
            {.fd = run->lease.wake, .events = POLLIN},
        };
        poll(polled, 3, tick_ms(run, pass_signals_on(run)));
        lh_run_lease_look(&run->lease);
        lh_run_take_signals(run);
        tell_deadline(run);
        take_messages(run);
        if (!run->has_ended)
            lh_run_asked_look(run);
        if (!run->has_ended && supervisor_left_us(run) < 0)
            run->has_ended = run->was_abandoned = true;
        turn_us = lh_clock_us() - turn_us;
        run->pause_us = turn_us > run->pause_us ? turn_us : run->pause_us;
    }
    lh_run_asked_finish(run);
    if (run->was_abandoned)
        lh_run_kill_descendants(&run->plan.cgroup);
}
