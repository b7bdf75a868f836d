/*
 * A plugin is somebody else's C, and runs in a process of its own: when it crashes, its transaction is rolled back with
 * the connection, and we, who are still there, write down which lease it crashed at. So that lease comes again by its
 * backoff, as after any other failure, and does not keep the others from being reaped: a new process goes on with them.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/complain.h"
#include "cli/reap.h"
#include "embed/transaction.h"

#define CRASHES_MAX 1000
#define RECORD_LIMIT_US (10 * LH_US_PER_S)

/* What the process that may crash tells the one that watches, in memory that both have. */
struct lh_reap_flight {
    volatile sig_atomic_t is_in_callback;
    int32_t reaped; /* committed, and not told yet */
    struct lh_embed_lease lease;
};

struct lh_reap_flight *lh_reap_flight_create(void)
{
    void *memory = mmap(NULL, sizeof(struct lh_reap_flight), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory != MAP_FAILED ? memory : NULL;
}

void lh_reap_flight_begin(struct lh_reap_flight *flight, const struct lh_embed_lease *lease)
{
    flight->lease = *lease;
    flight->lease.labels = NULL; /* in memory that dies with the process */
    flight->is_in_callback = 1;
}

void lh_reap_flight_end(struct lh_reap_flight *flight)
{
    flight->is_in_callback = 0;
}

void lh_reap_flight_count(struct lh_reap_flight *flight, int32_t reaped)
{
    flight->reaped = reaped;
}

/* Its session may live for a moment longer than the process, and have the lease's row locked. */
static enum lh_exit record(struct lh_reap_pass *pass, const struct lh_embed_lease *lease, const char *words)
{
    static const char failed[] =
        "select f.reap_failures, (extract(epoch from f.next_try_at) * 1000000)::bigint as next_us,"
        " (extract(epoch from now()) * 1000000)::bigint as now_us"
        "  from leasehold.reap_failed(null, $1, $2, $3, $4) f";
    static const char held[] =
        "select from leasehold.lease l where l.namespace = $1 and l.key = $2 and l.token = $3::bigint";
    char token[24];
    const char *const values[] = {lease->namespace_text, lease->key, token, words};
    int64_t until_us = lh_clock_us() + RECORD_LIMIT_US;
    struct lh_session *session;
    enum lh_exit status = lh_database_open(&session, pass->cli);
    bool is_held = status == LH_EXIT_DONE, is_done = false;

    snprintf(token, sizeof(token), "%lld", (long long)lease->token);
    for (unsigned attempt = 0; is_held && !is_done && lh_clock_us() < until_us; attempt++) {
        PGresult *result;
        if (attempt > 0)
            lh_pause(lh_backoff_of_attempt_us(attempt));
        result = lh_database_query(session, pass->cli, failed, values, 4, &status);
        is_done = result == NULL || PQntuples(result) > 0;
        /* A reap by name would try it again at once, and crash again. */
        if (result != NULL && is_done && pass->skip_failed_since_us == 0)
            pass->skip_failed_since_us = lh_row_number(result, 0, "now_us", 0);
        if (result != NULL && is_done)
            lh_reap_add_outcome(pass, lease, words, (int32_t)lh_row_number(result, 0, "reap_failures", 0),
                                lh_row_number(result, 0, "next_us", 0));
        PQclear(result);
        if (!is_done) {
            result = lh_database_query(session, pass->cli, held, values, 3, &status);
            is_held = result != NULL && PQntuples(result) > 0;
            PQclear(result);
        }
    }
    lh_session_close(session);
    return status;
}

static pid_t start(struct lh_reap_flight *flight, lh_reap_work *work, void *arg)
{
    pid_t parent = getpid();
    pid_t child;

    fflush(NULL);
    flight->is_in_callback = 0;
    flight->reaped = 0;
    child = fork();
    if (child != 0)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(LH_EXIT_FAILED);
    _exit((int)lh_flush(work(arg)));
}

enum lh_exit lh_reap_guard(struct lh_reap_pass *pass, lh_reap_work *work, lh_reap_crash *on_crash, void *arg)
{
    struct lh_reap_flight *flight = pass->callback->flight;
    bool has_crashed = false;

    for (int crashes = 0; crashes < CRASHES_MAX; crashes++) {
        char words[96];
        int status = 0;
        enum lh_exit recorded = LH_EXIT_FAILED;
        pid_t child = start(flight, work, arg);

        if (child < 0) {
            lh_complain("cannot start a process for the plugin: %s", strerror(errno));
            return LH_EXIT_FAILED;
        }
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
        if (WIFEXITED(status) && !flight->is_in_callback)
            return has_crashed && WEXITSTATUS(status) == LH_EXIT_DONE ? LH_EXIT_FAILED
                                                                      : (enum lh_exit)WEXITSTATUS(status);
        has_crashed = true;
        if (WIFSIGNALED(status))
            snprintf(words, sizeof(words), "the plugin crashed: signal %d (%s)", WTERMSIG(status),
                     strsignal(WTERMSIG(status)));
        else
            snprintf(words, sizeof(words), "the plugin ended the process with status %d", WEXITSTATUS(status));
        leasehold__v1__reap_response__init(&pass->total);
        pass->total.reaped = flight->reaped;
        if (flight->is_in_callback)
            recorded = record(pass, &flight->lease, words);
        else
            lh_complain("%s, outside of its callback", words);
        on_crash(arg);
        if (recorded != LH_EXIT_DONE)
            return recorded;
    }
    lh_complain("the plugin crashes again and again");
    return LH_EXIT_FAILED;
}
