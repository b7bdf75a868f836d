/*
 * The happy path: CREATING (a child process makes what is missing of the cluster, nothing at the second start),
 * STARTING (postgres is our child; its postmaster.pid says when it is ready), READY, STOPPING, STOPPED.
 *
 * What else happens: a postmaster of an earlier daemon still works in the directory: it is adopted, and looked after
 * by its process id, for it is no child of ours. PostgreSQL dies: RESTING, then CREATING again, after 100 ms doubling
 * to 5 s. It never became ready after some attempts: on_failed, for then a person is needed.
 */
#include "daemon/embedded.h"

#include <assert.h>
#include <signal.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "daemon/child.h"
#include "daemon/cluster.h"
#include "loop/loop.h"

#define LOOK_US (25 * LH_US_PER_MS)          /* while it starts or stops */
#define LOOK_AFTER_ADOPTED_US LH_US_PER_S    /* no SIGCHLD comes for it */
#define STILL_STARTING_US (10 * LH_US_PER_S) /* say so that often */
#define FIRST_REST_US (100 * LH_US_PER_MS)
#define LONGEST_REST_US (5 * LH_US_PER_S)
#define FIRST_ATTEMPTS 4
#define FAST_STOP_US (60 * LH_US_PER_S)      /* a fast shutdown writes a checkpoint; then immediate */
#define IMMEDIATE_STOP_US (10 * LH_US_PER_S) /* then SIGKILL */

enum state {
    STATE_IDLE,
    STATE_CREATING, /* a child of ours makes the cluster */
    STATE_STARTING, /* a postmaster runs, and is not ready */
    STATE_READY,
    STATE_RESTING, /* before the next attempt */
    STATE_STOPPING,
    STATE_STOPPED,
};

static const char *const state_names[] = {"idle", "creating", "starting", "ready", "resting", "stopping", "stopped"};

struct lh_embedded {
    struct lh_loop *loop;
    struct lh_children *children;
    struct lh_cluster cluster;
    char *conninfo;
    char *serving_conninfo;
    const struct lh_embedded_events *events;
    void *arg;

    enum state state;
    struct lh_child child; /* the maker or the postmaster */
    pid_t adopted;         /* the postmaster, when it is not our child; else 0 */
    struct lh_timer timer;
    int64_t since_us; /* in this state */
    int64_t rest_us;
    unsigned attempts; /* since it was ready */
    bool was_ready;
    int stop_signal; /* the last one sent */
    int64_t stop_signal_us;
    void (*on_stopped)(void *arg);
    void *stopped_arg;
};

#define TO(state) (1u << STATE_##state)

/* Where a process cannot be started, RESTING follows at once; IDLE instead of it after so many first attempts. */
static const unsigned legal_moves[] = {
    [STATE_IDLE] = TO(CREATING) | TO(RESTING) | TO(IDLE) | TO(STOPPED),
    [STATE_CREATING] = TO(STARTING) | TO(RESTING) | TO(IDLE) | TO(STOPPING),
    [STATE_STARTING] = TO(READY) | TO(RESTING) | TO(IDLE) | TO(STOPPING),
    [STATE_READY] = TO(RESTING) | TO(STOPPING),
    [STATE_RESTING] = TO(CREATING) | TO(RESTING) | TO(IDLE),
    [STATE_STOPPING] = TO(STOPPED),
    [STATE_STOPPED] = 0,
};

static void set_state(struct lh_embedded *embedded, enum state state, int64_t look_after_us)
{
    assert(legal_moves[embedded->state] & (1u << state));
    lh_debug("embedded PostgreSQL: %s -> %s", state_names[embedded->state], state_names[state]);
    embedded->state = state;
    embedded->since_us = lh_clock_us();
    if (look_after_us < 0)
        lh_timer_cancel(&embedded->timer);
    else
        lh_timer_arm_at_us(&embedded->timer, embedded->since_us + look_after_us);
}

static void be_stopped(struct lh_embedded *embedded)
{
    set_state(embedded, STATE_STOPPED, -1);
    embedded->on_stopped(embedded->stopped_arg);
}

static void rest(struct lh_embedded *embedded)
{
    embedded->attempts++;
    if (!embedded->was_ready && embedded->attempts >= FIRST_ATTEMPTS) {
        lh_err("PostgreSQL could not be started in %s; see %s", embedded->cluster.directory, embedded->cluster.log);
        set_state(embedded, STATE_IDLE, -1);
        embedded->events->on_failed(embedded->arg);
        return;
    }
    set_state(embedded, STATE_RESTING, embedded->rest_us);
    embedded->rest_us = embedded->rest_us * 2 > LONGEST_REST_US ? LONGEST_REST_US : embedded->rest_us * 2;
}

static void be_ready(struct lh_embedded *embedded)
{
    char *psql = lh_cluster_psql(&embedded->cluster);

    lh_info("PostgreSQL is ready; to look at it: %s", psql);
    free(psql);
    embedded->was_ready = true;
    embedded->attempts = 0;
    embedded->rest_us = FIRST_REST_US;
    set_state(embedded, STATE_READY, embedded->adopted != 0 ? LOOK_AFTER_ADOPTED_US : -1);
    embedded->events->on_ready(embedded->arg);
}

static void on_postmaster_gone(struct lh_embedded *embedded, const char *how)
{
    embedded->adopted = 0;
    if (embedded->state == STATE_STOPPING) {
        lh_info("PostgreSQL has stopped");
        be_stopped(embedded);
        return;
    }
    lh_err("PostgreSQL ended with %s; starting it again", how);
    if (embedded->state == STATE_STARTING)
        lh_cluster_log_tail(&embedded->cluster, "startup.log");
    rest(embedded);
}

static void on_postmaster_exit(void *arg, int wait_status)
{
    char how[LH_CHILD_END_BYTES];

    lh_child_describe_end(wait_status, how);
    on_postmaster_gone(arg, how);
}

static void start_postmaster(struct lh_embedded *embedded)
{
    struct lh_postmaster found = lh_cluster_postmaster(&embedded->cluster);

    if (found.pid != 0) {
        lh_info("adopting the PostgreSQL that an earlier daemon left, process %ld", (long)found.pid);
        embedded->adopted = found.pid;
    } else if (!lh_child_start(embedded->children, &embedded->child, lh_cluster_run_postgres, &embedded->cluster,
                               on_postmaster_exit, embedded)) {
        lh_err("no process for PostgreSQL: the system refuses");
        rest(embedded);
        return;
    }
    set_state(embedded, STATE_STARTING, LOOK_US);
}

static void on_created(void *arg, int wait_status)
{
    struct lh_embedded *embedded = arg;
    char how[LH_CHILD_END_BYTES];

    if (embedded->state == STATE_STOPPING) {
        be_stopped(embedded);
    } else if (wait_status == 0) {
        start_postmaster(embedded);
    } else {
        lh_child_describe_end(wait_status, how);
        lh_err("the cluster in %s could not be made: %s", embedded->cluster.directory, how);
        lh_cluster_log_tail(&embedded->cluster, "initdb.log");
        embedded->attempts = FIRST_ATTEMPTS; /* it would fail again for the same reason */
        rest(embedded);
    }
}

static void create(struct lh_embedded *embedded)
{
    if (lh_child_start(embedded->children, &embedded->child, lh_cluster_create_data, &embedded->cluster, on_created,
                       embedded)) {
        set_state(embedded, STATE_CREATING, -1);
    } else {
        lh_err("no process for initdb: the system refuses");
        rest(embedded);
    }
}

static void look_whether_ready(struct lh_embedded *embedded)
{
    struct lh_postmaster found = lh_cluster_postmaster(&embedded->cluster);
    pid_t ours = embedded->adopted != 0 ? embedded->adopted : embedded->child.pid;
    int64_t now_us = lh_clock_us();

    if (found.pid == ours && found.is_ready) {
        be_ready(embedded);
        return;
    }
    if (embedded->adopted != 0 && found.pid != embedded->adopted) {
        on_postmaster_gone(embedded, "its process gone");
        return;
    }
    if ((now_us - embedded->since_us) / STILL_STARTING_US !=
        (now_us + LOOK_US - embedded->since_us) / STILL_STARTING_US)
        lh_info("PostgreSQL is still starting (a recovery takes its time)");
    lh_timer_arm_at_us(&embedded->timer, now_us + LOOK_US);
}

static void send_stop(struct lh_embedded *embedded, int number)
{
    embedded->stop_signal = number;
    embedded->stop_signal_us = lh_clock_us();
    if (embedded->adopted != 0)
        kill(embedded->adopted, number);
    else
        lh_child_signal(&embedded->child, number);
}

static void look_whether_stopped(struct lh_embedded *embedded)
{
    int64_t patience_us = embedded->stop_signal == SIGINT ? FAST_STOP_US : IMMEDIATE_STOP_US;
    int64_t now_us = lh_clock_us();

    if (embedded->adopted != 0 && lh_cluster_postmaster(&embedded->cluster).pid != embedded->adopted) {
        on_postmaster_gone(embedded, "its process gone");
        return;
    }
    if (now_us - embedded->stop_signal_us > patience_us && embedded->stop_signal != SIGKILL) {
        lh_warn("PostgreSQL does not stop; sending a stronger signal");
        send_stop(embedded, embedded->stop_signal == SIGINT ? SIGQUIT : SIGKILL);
    }
    lh_timer_arm_at_us(&embedded->timer, now_us + LOOK_US);
}

static void on_timer(void *arg)
{
    struct lh_embedded *embedded = arg;

    switch (embedded->state) {
    case STATE_STARTING:
        look_whether_ready(embedded);
        break;
    case STATE_READY:
        if (lh_cluster_postmaster(&embedded->cluster).pid != embedded->adopted)
            on_postmaster_gone(embedded, "its process gone");
        else
            lh_timer_arm_at_us(&embedded->timer, lh_clock_us() + LOOK_AFTER_ADOPTED_US);
        break;
    case STATE_RESTING:
        create(embedded);
        break;
    case STATE_STOPPING:
        look_whether_stopped(embedded);
        break;
    case STATE_IDLE: /* stopped before it was started */
        be_stopped(embedded);
        break;
    case STATE_CREATING:
    case STATE_STOPPED:
        break;
    }
}

struct lh_embedded *lh_embedded_create(struct lh_loop *loop, struct lh_children *children, const char *directory,
                                       const char *user, const struct lh_embedded_events *events, void *arg,
                                       struct lh_error *error)
{
    struct lh_embedded *embedded = lh_alloc_zero(1, sizeof(*embedded));

    if (lh_cluster_open(&embedded->cluster, directory, user, error) != LH_OK) {
        free(embedded);
        return NULL;
    }
    embedded->loop = loop;
    embedded->children = children;
    embedded->events = events;
    embedded->arg = arg;
    embedded->rest_us = FIRST_REST_US;
    embedded->conninfo = lh_cluster_conninfo(&embedded->cluster, LH_CLUSTER_ROLE);
    embedded->serving_conninfo = lh_cluster_conninfo(&embedded->cluster, LH_CLUSTER_SERVING_ROLE);
    lh_timer_init(&embedded->timer, loop, on_timer, embedded);
    return embedded;
}

void lh_embedded_start(struct lh_embedded *embedded)
{
    lh_info("embedded PostgreSQL: directory %s, programs %s, user %s", embedded->cluster.directory,
            embedded->cluster.programs, embedded->cluster.user);
    create(embedded);
}

const char *lh_embedded_core(const struct lh_embedded *embedded)
{
    return embedded->cluster.core;
}

const char *lh_embedded_user(const struct lh_embedded *embedded)
{
    return embedded->cluster.user;
}

const char *lh_embedded_conninfo(const struct lh_embedded *embedded)
{
    return embedded->conninfo;
}

const char *lh_embedded_serving_conninfo(const struct lh_embedded *embedded)
{
    return embedded->serving_conninfo;
}

void lh_embedded_stop(struct lh_embedded *embedded, void (*on_stopped)(void *arg), void *arg)
{
    enum state before = embedded->state;

    embedded->on_stopped = on_stopped;
    embedded->stopped_arg = arg;
    if (before == STATE_IDLE || before == STATE_RESTING) {
        set_state(embedded, STATE_IDLE, 0);
        return;
    }
    set_state(embedded, STATE_STOPPING, LOOK_US);
    if (before == STATE_CREATING) {
        embedded->stop_signal = SIGKILL;
        lh_child_kill_all(&embedded->child); /* initdb and what it runs; the next start begins again */
    } else {
        send_stop(embedded, SIGINT);
    }
}

void lh_embedded_hurry(struct lh_embedded *embedded)
{
    if (embedded->state == STATE_STOPPING && embedded->stop_signal == SIGINT)
        send_stop(embedded, SIGQUIT);
}

void lh_embedded_destroy(struct lh_embedded *embedded)
{
    if (embedded == NULL)
        return;
    lh_timer_finish(&embedded->timer);
    lh_cluster_close(&embedded->cluster);
    free(embedded->conninfo);
    free(embedded->serving_conninfo);
    free(embedded);
}
