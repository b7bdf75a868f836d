#include "cli/run/run_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/run/supervisor_internal.h"

static const int passed_on[LH_RUN_PASSED_ON] = {SIGHUP,  SIGINT,  SIGQUIT,  SIGTERM, SIGUSR1,
                                                SIGUSR2, SIGCONT, SIGWINCH, SIGTSTP, SIGALRM};

/* As nohup(1) does with SIGHUP: the command ignores it too. A blocked signal would be heard all the same. */
static bool is_ignored(int number)
{
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

bool lh_run_signals_open(struct lh_run_signals *signals, sigset_t *mask)
{
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < LH_RUN_PASSED_ON; i++)
        if (!is_ignored(passed_on[i]))
            sigaddset(&set, passed_on[i]);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTTOU); /* putting the terminal right must not stop us */
    sigprocmask(SIG_BLOCK, &set, mask);
    sigdelset(&set, SIGTTOU);
    *signals = (struct lh_run_signals){.file = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), .witness = -1};
    return signals->file >= 0;
}

/* --- the witness in our group --- */

static void witness(int told, pid_t parent)
{
    int null = open("/dev/null", O_RDWR), signals;
    sigset_t everything;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigfillset(&everything);
    sigprocmask(SIG_SETMASK, &everything, NULL);
    signals = signalfd(-1, &everything, SFD_NONBLOCK);
    if (getppid() != parent || null < 0 || signals < 0)
        _exit(1);
    /* The command's files are its own: its reader must see the end when the command closes them. */
    for (int file = 0; file <= STDERR_FILENO; file++)
        dup2(null, file);
    for (int file = STDERR_FILENO + 1, last = signals > null ? signals : null; file <= last; file++)
        if (file != told && file != signals)
            close(file);
    for (;;) {
        struct pollfd polled[] = {{.fd = signals, .events = POLLIN}, {.fd = told}};
        struct signalfd_siginfo signal;

        poll(polled, 2, -1);
        while (read(signals, &signal, sizeof(signal)) == sizeof(signal)) {
            unsigned char number = (unsigned char)signal.ssi_signo;
            if (write(told, &number, 1) != 1)
                break; /* nobody has read the others */
        }
        if (polled[1].revents != 0) /* nobody is there to read */
            _exit(0);
    }
}

bool lh_run_witness_start(struct lh_run_signals *signals)
{
    pid_t parent = getpid();
    int ends[2];

    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return false;
    signals->process = fork();
    if (signals->process == 0) {
        close(ends[0]);
        witness(ends[1], parent);
    }
    close(ends[1]);
    signals->witness = ends[0];
    memset(signals->gathered, 0, sizeof(signals->gathered));
    if (signals->process < 0)
        lh_run_witness_end(signals);
    return signals->witness >= 0;
}

void lh_run_witness_end(struct lh_run_signals *signals)
{
    if (signals->witness >= 0)
        close(signals->witness);
    signals->witness = -1;
    if (signals->process > 0 && waitpid(signals->process, NULL, WNOHANG) == 0) {
        kill(signals->process, SIGKILL); /* it may be stopped */
        waitpid(signals->process, NULL, 0);
    }
    signals->process = 0;
}

/* --- taking and telling --- */

static struct lh_run_gathered *place_of(struct lh_run_signals *signals, int number)
{
    for (size_t i = 0; i < LH_RUN_PASSED_ON; i++)
        if (passed_on[i] == number)
            return &signals->gathered[i];
    return NULL;
}

void lh_run_signals_gather(struct lh_run_signals *signals, const struct signalfd_siginfo *told)
{
    struct lh_run_gathered *gathered = place_of(signals, (int)told->ssi_signo);

    if (gathered == NULL)
        return;
    if (gathered->since_us == 0)
        *gathered = (struct lh_run_gathered){.since_us = lh_clock_us(), .in_group_us = gathered->in_group_us};
    gathered->is_of_ancestor |= told->ssi_pid != 0 && lh_run_descends_from((pid_t)told->ssi_pid);
}

static void hear_witness(struct lh_run_signals *signals)
{
    unsigned char number;

    while (read(signals->witness, &number, 1) == 1) {
        struct lh_run_gathered *gathered = place_of(signals, number);
        if (gathered != NULL)
            gathered->in_group_us = lh_clock_us();
    }
}

int64_t lh_run_signals_pass_on(struct lh_run_signals *signals, int channel, bool *has_stop)
{
    int64_t now_us = lh_clock_us(), next_us = LH_RUN_GATHER_US;

    *has_stop = false;
    hear_witness(signals);
    for (size_t i = 0; i < LH_RUN_PASSED_ON; i++) {
        struct lh_run_gathered *gathered = &signals->gathered[i];
        int64_t left_us = gathered->since_us + LH_RUN_GATHER_US - now_us;
        struct lh_run_message message = {.kind = LH_RUN_SIGNAL,
                                         .number = passed_on[i],
                                         .is_in_group = gathered->in_group_us >= gathered->since_us - LH_RUN_GATHER_US,
                                         .is_of_ancestor = gathered->is_of_ancestor};
        if (gathered->since_us == 0)
            continue;
        if (left_us > 0) {
            next_us = left_us < next_us ? left_us : next_us;
            continue;
        }
        lh_run_send(channel, &message);
        *has_stop |= passed_on[i] == SIGTSTP;
        gathered->since_us = 0;
    }
    return next_us;
}

/* --- terminal --- */

void lh_run_terminal_remember(struct lh_run_terminal *terminal)
{
    terminal->file = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (terminal->file >= 0 &&
        (tcgetpgrp(terminal->file) != getpgrp() || tcgetattr(terminal->file, &terminal->modes) != 0)) {
        close(terminal->file);
        terminal->file = -1;
    }
}

void lh_run_terminal_restore(const struct lh_run_terminal *terminal)
{
    pid_t foreground;

    if (terminal->file < 0)
        return;
    foreground = tcgetpgrp(terminal->file);
    if (foreground > 0 && foreground != getpgrp() && kill(-foreground, 0) != 0 && errno == ESRCH &&
        tcsetpgrp(terminal->file, getpgrp()) == 0)
        foreground = getpgrp();
    if (foreground == getpgrp())
        tcsetattr(terminal->file, TCSADRAIN, &terminal->modes);
    close(terminal->file);
}
