#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/error.h"
#include "cli/reap_database.h"
#include "embed/query.h"

#define TRANSACTION_LEASES 1000 /* of those without a callback of ours */
#define PROGRESS_AFTER_US (2 * LH_US_PER_S)
#define PROGRESS_EVERY_US (LH_US_PER_S / 4)

struct run {
    struct lh_reap_pass *pass;
    bool is_verbose;
    bool shows_progress;
    bool has_progress; /* on the screen */
    int64_t begun_us;
    int64_t shown_us;
};

/* One line that stays in its place, on a terminal, if it takes long. */
static void show_progress(struct run *run)
{
    int64_t now_us = lh_clock_us();

    if (!run->shows_progress || now_us - run->begun_us < PROGRESS_AFTER_US ||
        now_us - run->shown_us < PROGRESS_EVERY_US)
        return;
    fprintf(stderr, "\r\033[Kreaped %" PRId32 ", failed %zu, %" PRId64 " s", run->pass->total.reaped,
            run->pass->total.n_failures, (now_us - run->begun_us) / LH_US_PER_S);
    run->shown_us = now_us;
    run->has_progress = true;
}

static void clear_progress(struct run *run)
{
    if (run->has_progress)
        fputs("\r\033[K", stderr);
    run->has_progress = false;
}

static void on_outcome(void *arg, const struct lh_reap_outcome *outcome)
{
    struct run *run = arg;
    struct lh_reap_pass *pass = run->pass;
    const struct lh_embed_lease *lease = outcome->lease;
    char name[LH_SCOPE_NAME_BYTES];

    if (outcome->is_reaped)
        lh_reap_pass_add_reaped(pass, 1);
    else
        lh_reap_pass_add_failed(pass, lease, outcome->error, outcome->reap_failures, outcome->next_try_at_us);
    if (outcome->is_reaped && run->is_verbose)
        lh_error_print("reaped %s of %s, token %" PRId64, lh_scope_name(lease->namespace_text, lease->key, name),
                       lease->owner[0] != '\0' ? lease->owner : "an unknown owner", lease->token);
    show_progress(run);
}

static int on_lease(void *arg, PGconn *conn, const struct lh_embed_lease *lease, struct lh_error *error)
{
    struct run *run = arg;
    const struct lh_reap_callback *callback = &run->pass->callback;

    clear_progress(run);
    return callback->on_lease(callback->arg, conn, lease, error);
}

enum lh_exit lh_reap_by_database(struct lh_reap_pass *pass, struct lh_session *session)
{
    const struct lh_args *args = &pass->cli->args;
    const struct lh_reap_callback *callback = &pass->callback;
    struct run run = {
        .pass = pass,
        .is_verbose = lh_args_has(args, "verbose"),
        .shows_progress = isatty(STDERR_FILENO) && !lh_args_has(args, "verbose"),
        .begun_us = lh_clock_us(),
    };
    struct lh_reap_options options = {
        .namespaces = args->words,
        .namespace_count = args->word_count,
        .include_children = pass->include_children,
        .on_lease = callback->on_lease != NULL ? on_lease : NULL,
        .on_outcome = on_outcome,
        .arg = &run,
        .statement_timeout_us = pass->cli->timeout_us,
        .limit_us = callback->limit_us,
        .keep_backoff = pass->keep_backoff,
        .skip_failed_since_us = pass->skip_failed_since_us,
    };
    struct lh_error error = {0};
    enum lh_status status;

    if (callback->transactions > 0)
        options.transaction_max = (uint32_t)callback->transactions;
    else if (pass->max > 0)
        options.transaction_max = (uint32_t)pass->max;
    else if (callback->on_lease == NULL)
        options.transaction_max = TRANSACTION_LEASES;
    status = lh_reap_stale_with(lh_session_conn(session), &options, NULL, &error);
    clear_progress(&run);
    return status == LH_OK ? LH_EXIT_DONE : lh_error_database(pass->cli, &error);
}

void lh_reap_tell_unknown(const struct lh_reap_pass *pass, struct lh_session *session)
{
    static const char sql[] =
        "select n.namespace from unnest($1::text[]) as n (namespace)"
        " where not exists (select from leasehold.policy p where p.namespace = n.namespace)"
        "   and not exists (select from leasehold.hook h where h.namespace = n.namespace)"
        "   and not exists (select from leasehold.scope s"
        "                    where s.namespace = n.namespace or starts_with(s.namespace, n.namespace || '.'))";
    const struct lh_args *args = &pass->cli->args;
    char *namespaces = lh_query_array(args->words, args->word_count);
    const char *const values[] = {namespaces};
    PGresult *unknown = lh_session_query(session, sql, values, 1, NULL);

    for (int row = 0; unknown != NULL && row < PQntuples(unknown); row++)
        lh_error_print("%s has no lease, policy or hook: nothing to do", PQgetvalue(unknown, row, 0));
    PQclear(unknown);
    free(namespaces);
}
