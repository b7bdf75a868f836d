/*
 *     WAITING --- LH_RUN_START ---> RUNNING
 *                                      |
 *                                      | the deadline is near, the lease is lost, the outer process is gone, or the
 *                                      | command has ended
 *                                      v
 *                                   ENDING --- its time is over ---> KILLING
 *
 * In each state but the first: no child is left ---> report, or release the lease if the outer process is gone, and exit.
 *
 * One turn of the loop: take the messages, reap the children, look at the clock. Timers are on CLOCK_BOOTTIME, so that a
 * machine that wakes up from a suspend finds them due at once.
 */
#include "cli/run/supervisor_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/endpoints.h"

#define ROUND_FIRST_US                                                                                                 \
    (5 * LH_US_PER_MS) /* between two rounds of killing; doubling: a process may be unkillable for a while */
#define ROUND_LAST_US (500 * LH_US_PER_MS)
#define LOOK_FIRST_US (250 * LH_US_PER_MS)
#define LOOK_LAST_US (30 * LH_US_PER_S)
#define HEARD_US (5 * LH_RUN_GATHER_US) /* a signal that came to us before that is another one */

enum state {
    WAITING, /* for the lease */
    RUNNING,
    ENDING,  /* TERM was sent */
    KILLING, /* until no child is left */
};

struct supervisor {
    const struct lh_run_plan *plan;
    enum state state;
    int channel; /* -1: the outer process is gone */
    int signals; /* all of them; SIGCHLD is why to look for children */
    int timer;
    pid_t command;
    int status; /* the command's, once it has ended */
    bool has_ended;
    bool is_late;
    int64_t deadline_us;
    int64_t round_us;
    int64_t act_at_us; /* when the clock is to be looked at */
    int64_t look_us;
    int64_t look_at_us; /* whether a descendant cannot be signalled; 0: it was told */
    int64_t heard_us[NSIG];
    pid_t session; /* the command's, as it begins */
    pid_t kept;    /* the same once the command has ended and what has left it is kept; 0: nothing is */
};

bool lh_run_send(int channel, const struct lh_run_message *message)
{
    return send(channel, message, sizeof(*message), MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof(*message);
}

struct lh_run_values *lh_run_values_create(void)
{
    void *values = mmap(NULL, sizeof(struct lh_run_values), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return values == MAP_FAILED ? NULL : values;
}

/* --- what descends from it --- */

static void tell_found(const struct supervisor *supervisor, int kind, size_t count, const struct lh_run_found *found)
{
    struct lh_run_message message = {.kind = kind, .number = (int32_t)count};

    memcpy(message.names, found->names, sizeof(message.names));
    lh_run_send(supervisor->channel, &message);
}

/* Those that are kept apart. */
static struct lh_run_found signal_all(struct supervisor *supervisor, int number)
{
    struct lh_run_found found;

    if (number == SIGKILL)
        lh_run_cgroup_kill(&supervisor->plan->cgroup);
    lh_run_signal_descendants(number, supervisor->kept, &supervisor->plan->cgroup, &found);
    if (found.denied > 0 && supervisor->look_at_us != 0) {
        tell_found(supervisor, LH_RUN_DENIED, found.denied, &found);
        supervisor->look_at_us = 0;
    }
    return found;
}

/* --- the command --- */

/* Where there is none, that of a leasehold run around this one goes. */
static void set_or_unset(const char *name, const char *value)
{
    if (value[0] != '\0')
        setenv(name, value, 1);
    else
        unsetenv(name);
}

static void set_variables(const struct lh_run_plan *plan, const struct lh_run_message *start)
{
    char token[24], slot[12] = "";

    snprintf(token, sizeof(token), "%" PRId64, start->token);
    if (start->slot != 0)
        snprintf(slot, sizeof(slot), "%" PRId32, start->slot);
    unsetenv("LEASEHOLD_DATABASE"); /* may hold a password */
    setenv("LEASEHOLD_NAMESPACE", plan->namespace_text, 1);
    lh_tls_move_key_file();
    setenv("LEASEHOLD_KEY", plan->key, 1);
    setenv("LEASEHOLD_LEASE_KEY", plan->lease_key, 1);
    setenv("LEASEHOLD_TOKEN", token, 1);
    set_or_unset("LEASEHOLD_TOKENS", plan->values->tokens);
    set_or_unset("LEASEHOLD_SLOT", slot);
    set_or_unset("LEASEHOLD_SLOTS", plan->values->slots);
    set_or_unset("LEASEHOLD_TICK", plan->values->attempt[0] != '\0' ? plan->values->tick : "");
    set_or_unset("LEASEHOLD_ATTEMPT", plan->values->attempt);
}

static void become_command(const struct supervisor *supervisor, pid_t parent, int gate,
                           const struct lh_run_message *start)
{
    struct lh_run_message message = {.kind = LH_RUN_NOT_EXECUTED};
    char opened;

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* should both of us be killed at once, at least it goes too */
    if (getppid() != parent || read(gate, &opened, sizeof(opened)) != sizeof(opened))
        _exit(126);
    lh_run_cgroup_enter(&supervisor->plan->cgroup);
    set_variables(supervisor->plan, start);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &supervisor->plan->mask, NULL);
    execvp(supervisor->plan->argv[0], supervisor->plan->argv);
    message.number = errno;
    lh_run_send(supervisor->channel, &message);
    _exit(message.number == ENOENT ? 127 : 126);
}

/* The command's files are its own: its reader must see the end when the command closes them. */
static void let_go_of_files(const struct supervisor *supervisor)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int kept[] = {supervisor->channel, supervisor->signals, supervisor->timer};
    long limit = sysconf(_SC_OPEN_MAX);

    for (int file = 0; null >= 0 && file <= STDERR_FILENO; file++)
        dup2(null, file);
    for (int file = STDERR_FILENO + 1; file < limit && file < 4096; file++)
        if (file != kept[0] && file != kept[1] && file != kept[2])
            close(file);
}

static void fail_command(struct supervisor *supervisor, int error)
{
    struct lh_run_message failed = {.kind = LH_RUN_NOT_EXECUTED, .number = error};

    lh_run_send(supervisor->channel, &failed);
    supervisor->status = 126 << 8;
    supervisor->has_ended = true;
}

static bool is_too_late(const struct supervisor *supervisor)
{
    return lh_clock_us() >= lh_run_term_at_us(&supervisor->plan->schedule, supervisor->deadline_us);
}

/* We were stopped, with the group that we were in, before it could start. */
static void kill_late(struct supervisor *supervisor)
{
    supervisor->is_late = true;
    kill(supervisor->command, SIGKILL);
}

/*
 * The command stays in the group and session of the outer process, one job to the terminal; we leave both before it
 * may start. Another group alone is not enough: the end of a child whose parent is in another group of its session can
 * leave its group orphaned, and of an orphaned group with a stopped member the kernel hangs up all members.
 */
static void fork_command(struct supervisor *supervisor, const struct lh_run_message *start)
{
    pid_t self = getpid();
    int gate[2];

    if (pipe2(gate, O_CLOEXEC) != 0) {
        fail_command(supervisor, errno);
        return;
    }
    supervisor->session = getsid(0);
    supervisor->command = fork();
    if (supervisor->command == 0)
        become_command(supervisor, self, gate[0], start);
    if (supervisor->command < 0)
        fail_command(supervisor, errno);
    else if (setsid() < 0)
        _exit(1); /* which takes it along */
    else if (is_too_late(supervisor))
        kill_late(supervisor);
    else if (write(gate[1], "", 1) != 1)
        _exit(1);
    close(gate[0]);
    close(gate[1]);
}

static void start_command(struct supervisor *supervisor, const struct lh_run_message *message)
{
    supervisor->deadline_us = message->deadline_us;
    supervisor->state = RUNNING;
    supervisor->look_us = LOOK_FIRST_US;
    supervisor->look_at_us = lh_clock_us() + LOOK_FIRST_US;
    supervisor->is_late = is_too_late(supervisor); /* stopped meanwhile: without a child, this is the end */
    if (!supervisor->is_late)
        fork_command(supervisor, message);
    let_go_of_files(supervisor);
}

/* --- ending it --- */

static void end_all(struct supervisor *supervisor)
{
    int64_t now_us = lh_clock_us();
    struct lh_run_found found;

    if (supervisor->state != RUNNING)
        return;
    supervisor->state = ENDING;
    supervisor->act_at_us = lh_run_kill_at_us(&supervisor->plan->schedule, now_us, supervisor->deadline_us);
    if (supervisor->has_ended && supervisor->plan->keeps_detached)
        supervisor->kept = supervisor->session;
    found = signal_all(supervisor, supervisor->act_at_us > now_us ? SIGTERM : 0);
    if (supervisor->has_ended && found.count > 0)
        tell_found(supervisor, LH_RUN_LEFT, found.count, &found);
}

static void report_and_exit(const struct supervisor *supervisor)
{
    struct lh_run_message message = {
        .kind = LH_RUN_ENDED, .number = supervisor->status, .is_late = supervisor->is_late};

    if (supervisor->channel >= 0) {
        lh_run_send(supervisor->channel, &message);
    } else {
        lh_run_cgroup_remove(&supervisor->plan->cgroup);
        if (supervisor->plan->on_alone != NULL)
            supervisor->plan->on_alone(supervisor->plan->arg);
    }
    _exit(0);
}

static void reap(struct supervisor *supervisor)
{
    pid_t ended;
    int status;

    while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
        if (ended != supervisor->command)
            continue;
        supervisor->status = status;
        supervisor->has_ended = true;
    }
    if (ended < 0 && errno == ECHILD && supervisor->state != WAITING)
        report_and_exit(supervisor);
    if (supervisor->has_ended)
        end_all(supervisor); /* what it left behind must not go on without the lease */
    if (supervisor->kept != 0 && signal_all(supervisor, 0).count == 0)
        report_and_exit(supervisor);
}

/* Each time after twice as long: a walk through all processes is not free. */
static void look_at_descendants(struct supervisor *supervisor, int64_t now_us)
{
    if (now_us >= supervisor->look_at_us) {
        supervisor->look_us = supervisor->look_us < LOOK_LAST_US ? 2 * supervisor->look_us : supervisor->look_us;
        supervisor->look_at_us = now_us + supervisor->look_us;
        signal_all(supervisor, 0);
    }
    if (supervisor->look_at_us != 0 && supervisor->look_at_us < supervisor->act_at_us)
        supervisor->act_at_us = supervisor->look_at_us;
}

static void look_at_clock(struct supervisor *supervisor)
{
    int64_t now_us = lh_clock_us();

    if (supervisor->state == RUNNING) {
        supervisor->act_at_us = lh_run_term_at_us(&supervisor->plan->schedule, supervisor->deadline_us);
        if (now_us >= supervisor->act_at_us) {
            supervisor->is_late = true;
            end_all(supervisor);
        } else if (supervisor->look_at_us != 0) {
            look_at_descendants(supervisor, now_us);
        }
    }
    if (supervisor->state == ENDING && now_us >= supervisor->act_at_us)
        supervisor->state = KILLING;
    if (supervisor->state == KILLING && now_us >= supervisor->act_at_us) {
        signal_all(supervisor, SIGKILL);
        supervisor->act_at_us = now_us + supervisor->round_us;
        if (supervisor->round_us < ROUND_LAST_US)
            supervisor->round_us *= 2;
    }
}

/* --- the outer process --- */

static void pass_on(struct supervisor *supervisor, const struct lh_run_message *message)
{
    bool is_heard = lh_clock_us() - supervisor->heard_us[message->number] < HEARD_US;
    bool is_in_group = getpgid(supervisor->command) == getpgid(getppid());

    supervisor->heard_us[message->number] = INT64_MIN / 2;
    if (supervisor->command <= 0 || supervisor->has_ended)
        return;
    if (is_heard ? message->is_of_ancestor : message->is_in_group && is_in_group)
        return; /* the command has had it */
    kill(supervisor->command, message->number);
}

static void on_message(struct supervisor *supervisor, const struct lh_run_message *message)
{
    switch (message->kind) {
    case LH_RUN_START:
        if (supervisor->state == WAITING)
            start_command(supervisor, message);
        break;
    case LH_RUN_DEADLINE:
        if (message->deadline_us > supervisor->deadline_us)
            supervisor->deadline_us = message->deadline_us;
        break;
    case LH_RUN_LOST:
    case LH_RUN_STOP:
        end_all(supervisor);
        break;
    case LH_RUN_SIGNAL:
        pass_on(supervisor, message);
        break;
    default:
        break;
    }
}

static void take_messages(struct supervisor *supervisor)
{
    struct lh_run_message message;
    ssize_t size;

    while (supervisor->channel >= 0) {
        size = recv(supervisor->channel, &message, sizeof(message), MSG_DONTWAIT);
        if (size == sizeof(message)) {
            on_message(supervisor, &message);
        } else if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        } else { /* for whatever reason, the lease is not renewed any more */
            close(supervisor->channel);
            supervisor->channel = -1;
            if (supervisor->state == WAITING)
                _exit(0);
            end_all(supervisor);
        }
    }
}

static void wait_for_something(struct supervisor *supervisor)
{
    struct itimerspec at = {.it_value = {.tv_sec = supervisor->act_at_us / LH_US_PER_S,
                                         .tv_nsec = supervisor->act_at_us % LH_US_PER_S * 1000 + 1}};
    struct pollfd polled[] = {
        {.fd = supervisor->channel, .events = POLLIN},
        {.fd = supervisor->signals, .events = POLLIN},
        {.fd = supervisor->state == WAITING ? -1 : supervisor->timer, .events = POLLIN},
    };
    struct signalfd_siginfo told;

    if (supervisor->state != WAITING)
        timerfd_settime(supervisor->timer, TFD_TIMER_ABSTIME, &at, NULL);
    poll(polled, 3, -1);
    while (read(supervisor->signals, &told, sizeof(told)) == sizeof(told))
        supervisor->heard_us[told.ssi_signo] = lh_clock_us();
}

static void supervise(struct supervisor *supervisor)
{
    sigset_t everything;

    sigfillset(&everything);
    sigprocmask(SIG_SETMASK, &everything, NULL);
    signal(SIGCHLD, SIG_DFL);
    for (size_t i = 0; i < NSIG; i++)
        supervisor->heard_us[i] = INT64_MIN / 2;
    supervisor->signals = signalfd(-1, &everything, SFD_CLOEXEC | SFD_NONBLOCK);
    supervisor->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (supervisor->signals < 0 || supervisor->timer < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
        _exit(1);
    for (;;) {
        wait_for_something(supervisor);
        take_messages(supervisor);
        reap(supervisor);
        look_at_clock(supervisor);
    }
}

pid_t lh_run_supervisor_start(const struct lh_run_plan *plan, int *channel)
{
    struct supervisor supervisor = {.plan = plan, .round_us = ROUND_FIRST_US};
    int ends[2];
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return -1;
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        close(ends[0]);
        supervisor.channel = ends[1];
        supervise(&supervisor);
    }
    close(ends[1]);
    if (pid > 0)
        *channel = ends[0];
    else
        close(ends[0]);
    return pid;
}

/* --- schedule --- */

#define MARGIN_MAX_US LH_US_PER_S

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

struct lh_run_schedule lh_run_schedule_of(int64_t duration_us, int64_t kill_after_us)
{
    struct lh_run_schedule schedule = {
        .grace_us = least(kill_after_us, duration_us / 3),
        .margin_us = least(duration_us / 10, MARGIN_MAX_US),
    };

    if (schedule.grace_us < 2 * schedule.margin_us)
        schedule.grace_us = 2 * schedule.margin_us;
    return schedule;
}

int64_t lh_run_term_at_us(const struct lh_run_schedule *schedule, int64_t deadline_us)
{
    return deadline_us - schedule->grace_us;
}

int64_t lh_run_kill_at_us(const struct lh_run_schedule *schedule, int64_t now_us, int64_t deadline_us)
{
    return least(now_us + schedule->grace_us, deadline_us - schedule->margin_us);
}
