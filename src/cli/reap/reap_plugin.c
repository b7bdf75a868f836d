#include "cli/reap/reap_internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cli/database.h"
#include "cli/error.h"
#include "embed/transaction.h"

/* The loader looks for a bare name in the system's libraries; a user who types one means the file here. */
static char *path_of(const char *file)
{
    return strchr(file, '/') != NULL ? lh_strdup(file) : lh_format("./%s", file);
}

static int call_plugin(void *arg, PGconn *conn, const struct lh_embed_lease *lease, struct lh_error *error)
{
    const struct lh_reap_callback *callback = arg;
    struct lh_reap_flight *flight = callback->flight;
    int answer;

    flight->lease = *lease;
    flight->lease.principal = flight->lease.labels = NULL; /* in memory that dies with the process */
    flight->is_in_callback = 1;
    answer = callback->plugin->on_lease(callback->plugin->arg, conn, lease, error);
    flight->is_in_callback = 0;
    return answer;
}

bool lh_reap_use_plugin(struct lh_reap_callback *callback, const char *file, struct lh_error *error)
{
    char *path = path_of(file);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct lh_reap_plugin *plugin = library != NULL ? dlsym(library, "leasehold_reap_plugin") : NULL;

    if (library == NULL)
        lh_error_set(error, LH_INVALID_ARGUMENT, "--plugin: %s", dlerror());
    else if (plugin == NULL)
        lh_error_set(error, LH_INVALID_ARGUMENT, "--plugin: %s is not a plugin: it has no symbol leasehold_reap_plugin",
                     path);
    else if (plugin->version != LH_REAP_PLUGIN_VERSION)
        lh_error_set(error, LH_INVALID_ARGUMENT,
                     "--plugin: %s is made for version %u of plugins, this program has version %d", path,
                     plugin->version, LH_REAP_PLUGIN_VERSION);
    else if (plugin->on_lease == NULL)
        lh_error_set(error, LH_INVALID_ARGUMENT, "--plugin: %s has no callback on_lease", path);
    free(path);
    if (error->status != LH_OK) {
        if (library != NULL)
            dlclose(library);
        return false;
    }
    callback->on_lease = call_plugin;
    callback->arg = callback;
    callback->plugin = plugin;
    callback->flight = mmap(NULL, sizeof(*callback->flight), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (callback->flight != MAP_FAILED)
        return true;
    callback->flight = NULL;
    lh_error_set(error, LH_INVALID_ARGUMENT, "--plugin: no memory");
    return false;
}

/* --- the process that it runs in --- */

/*
 * A plugin is foreign C, and runs in a process of its own: when it crashes, its transaction is rolled back with the
 * connection, and this process, which is still there, records the lease that it crashed at. So that lease comes again by its
 * backoff, as after any other failure, and does not keep the others from being reaped: a new process goes on with them.
 */
#define CRASHES_MAX 1000
#define RECORD_LIMIT_US (10 * LH_US_PER_S)

/* Its session may live for a moment longer than the process, and have the lease's row locked. */
static enum lh_exit record(struct lh_reap_pass *pass, const struct lh_embed_lease *lease, const char *words)
{
    static const char failed[] =
        "select f.reap_failures, (extract(epoch from f.next_try_at) * 1000000)::bigint as next_us,"
        " (extract(epoch from now()) * 1000000)::bigint as now_us"
        "  from leasehold_internal.reap_failed(null, $1, $2, $3, $4) f";
    static const char held[] =
        "select from leasehold.lease l where l.namespace = $1 and l.key = $2 and l.token = $3::bigint";
    char token[24];
    const char *const values[] = {lease->namespace_text, lease->key, token, words};
    int64_t until_us = lh_clock_us() + RECORD_LIMIT_US;
    PGconn *session;
    enum lh_exit status = lh_database_open(&session, pass->cli, LH_DATABASE_WRITE);
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
            pass->skip_failed_since_us = lh_query_number(result, 0, "now_us", 0);
        if (result != NULL && is_done)
            lh_reap_pass_add_failed(pass, lease, words, (int32_t)lh_query_number(result, 0, "reap_failures", 0),
                                    lh_query_number(result, 0, "next_us", 0));
        PQclear(result);
        if (!is_done) {
            result = lh_database_query(session, pass->cli, held, values, 3, &status);
            is_held = result != NULL && PQntuples(result) > 0;
            PQclear(result);
        }
    }
    PQfinish(session);
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

enum lh_exit lh_reap_guard(struct lh_reap_pass *pass, lh_reap_work *work, void *arg)
{
    struct lh_reap_flight *flight = pass->callback.flight;
    bool has_crashed = false;

    for (int crashes = 0; crashes < CRASHES_MAX; crashes++) {
        char words[96];
        int status = 0;
        enum lh_exit recorded = LH_EXIT_FAILED;
        pid_t child = start(flight, work, arg);

        if (child < 0)
            return lh_error_print("cannot start a process for the plugin: %s", strerror(errno));
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
        lh_reap_pass_begin(pass);
        pass->total.reaped = flight->reaped; /* what the process had done and could not report */
        if (flight->is_in_callback)
            recorded = record(pass, &flight->lease, words);
        else
            lh_error_print("%s, outside of its callback", words);
        lh_reap_pass_report(pass, true);
        lh_reap_pass_end(pass);
        if (recorded != LH_EXIT_DONE)
            return recorded;
    }
    return lh_error_print("giving up: the plugin crashed %d times", CRASHES_MAX);
}
