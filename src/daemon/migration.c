#include "daemon/migration.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "daemon/child.h"
#include "loop/loop.h"
#include "pg/error.h"
#include "pg/migrate.h"

#define FIRST_REST_US (250 * LH_US_PER_MS)
#define LONGEST_REST_US (5 * LH_US_PER_S)
#define TELL_AGAIN_US (60 * LH_US_PER_S)

enum { EXIT_DONE, EXIT_REFUSED, EXIT_TRY_AGAIN };

struct lh_migration_run {
    struct lh_loop *loop;
    struct lh_children *children;
    struct lh_child child;
    struct lh_timer timer;
    int64_t rest_us;
    bool is_stopping;
    struct lh_migration_options options;
    struct lh_error *found; /* by the child; memory that both have */
    struct lh_error told;
    int64_t told_us;
    struct lh_migration_events events;
    void *arg;
};

static void on_line(void *arg, const char *line)
{
    const struct lh_migration_run *run = arg;
    lh_info("migration%s%s: %s", *run->options.name != '\0' ? " of database " : "", run->options.name, line);
}

/* Without it everything works, only slower. */
static void make_core(const struct lh_migration_options *options)
{
    struct lh_error error = {0};

    if (lh_migrate_core(options->conninfo, options->core_module, &error) != LH_OK)
        lh_info("the extension leasehold_core is not used: %s", error.message);
}

static int migrate(void *arg)
{
    const struct lh_migration_run *run = arg;
    struct lh_migrate_output output = {.on_line = on_line, .arg = arg};
    struct lh_error *error = run->found;
    const struct lh_migration_options *options = &run->options;
    enum lh_migrate_mode mode = options->is_check ? LH_MIGRATE_CHECK : LH_MIGRATE_RUN;
    enum lh_status status;

    prctl(PR_SET_PDEATHSIG, SIGTERM);
    status = lh_migrate(options->conninfo, mode, &lh_migrations, LH_VERSION, &output, error);
    if (status == LH_OK && options->serving_role != NULL)
        status = lh_migrate_serving_role(options->conninfo, options->serving_role, error);
    if (status == LH_OK && options->makes_core)
        make_core(options);
    switch (status) {
    case LH_OK:
        return EXIT_DONE;
    case LH_DATABASE_UNAVAILABLE:
        return EXIT_TRY_AGAIN;
    default:
        lh_err("migration%s%s: %s", *options->name != '\0' ? " of database " : "", options->name, error->message);
        return EXIT_REFUSED;
    }
}

static void finish(struct lh_migration_run *run, bool is_done)
{
    lh_timer_cancel(&run->timer);
    run->events.on_done(run->arg, is_done);
}

static void tell_trouble(struct lh_migration_run *run)
{
    const struct lh_error *found = run->found;
    int64_t now_us = lh_clock_us();
    bool is_permanent = lh_pg_is_permanent(found->sqlstate);

    run->events.on_trouble(run->arg, found->message, lh_pg_cause(found->sqlstate));
    if (strcmp(found->message, run->told.message) == 0 && now_us - run->told_us < TELL_AGAIN_US)
        return;
    run->told = *found;
    run->told_us = now_us;
    lh_log(is_permanent ? LH_LOG_ERROR : LH_LOG_WARN, "not serving yet, the database %s%scannot be used%s: %s",
           run->options.name, *run->options.name != '\0' ? " " : "",
           is_permanent ? " until an administrator changes something" : "", found->message);
}

static void on_exit_of_child(void *arg, int wait_status)
{
    struct lh_migration_run *run = arg;
    char how[LH_CHILD_END_BYTES];

    if (run->is_stopping || (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) != EXIT_TRY_AGAIN)) {
        finish(run, wait_status == 0);
        return;
    }
    if (WIFSIGNALED(wait_status)) {
        lh_child_describe_end(wait_status, how);
        lh_warn("the migration ended with %s; trying again", how);
    } else {
        tell_trouble(run);
    }
    lh_timer_arm_at_us(&run->timer, lh_clock_us() + run->rest_us);
    run->rest_us = run->rest_us * 2 > LONGEST_REST_US ? LONGEST_REST_US : run->rest_us * 2;
}

static void attempt(void *arg)
{
    struct lh_migration_run *run = arg;

    if (run->is_stopping) {
        finish(run, false);
    } else if (!lh_child_start(run->children, &run->child, migrate, run, on_exit_of_child, run)) {
        lh_warn("no process for the migration: %s", strerror(errno));
        lh_timer_arm_at_us(&run->timer, lh_clock_us() + LONGEST_REST_US);
    }
}

struct lh_migration_run *lh_migration_run_create(struct lh_loop *loop, struct lh_children *children,
                                                 const struct lh_migration_options *options,
                                                 const struct lh_migration_events *events, void *arg)
{
    struct lh_migration_run *run = lh_alloc_zero(1, sizeof(*run));

    run->found = mmap(NULL, sizeof(*run->found), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run->found == MAP_FAILED) {
        lh_err("out of memory for the migration; stopping");
        abort();
    }
    run->loop = loop;
    run->children = children;
    run->options = *options;
    run->rest_us = FIRST_REST_US;
    run->events = *events;
    run->arg = arg;
    lh_timer_init(&run->timer, loop, attempt, run);
    lh_timer_arm_at_us(&run->timer, lh_clock_us());
    return run;
}

void lh_migration_run_stop(struct lh_migration_run *run)
{
    run->is_stopping = true;
    if (run->child.pid != 0)
        lh_child_signal(&run->child, SIGTERM);
    else
        lh_timer_arm_at_us(&run->timer, lh_clock_us());
}

void lh_migration_run_destroy(struct lh_migration_run *run)
{
    if (run == NULL)
        return;
    lh_timer_finish(&run->timer);
    munmap(run->found, sizeof(*run->found));
    free(run);
}
