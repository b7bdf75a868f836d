/*
 * A plugin for `leasehold reap --plugin`: the job that a lease was taken for goes back into the queue, in the
 * transaction in which the lease ends. Either both happen or neither does.
 *
 *     cc -shared -fPIC -I"$(pg_config --includedir)" -o put_back.so put_back.c -lpq
 *     leasehold reap jobs --once --database postgresql:///app --plugin ./put_back.so
 *
 * It expects: create table job (id text primary key, state text not null, attempts integer not null default 0);
 */
#include <leasehold.h>
#include <libpq-fe.h>
#include <stdio.h>

static int put_back(void *arg, PGconn *conn, const struct lh_embed_lease *lease, struct lh_error *error)
{
    const char *const values[] = {lease->key};
    PGresult *result = PQexecParams(conn,
                                    "update public.job set state = 'queued', attempts = attempts + 1"
                                    " where id = $1 and state = 'running'",
                                    1, NULL, values, NULL, NULL, 0);
    int failed = PQresultStatus(result) != PGRES_COMMAND_OK;

    if (failed)
        snprintf(error->message, sizeof(error->message), "cannot put job %.64s back: %.400s", lease->key,
                 PQresultErrorMessage(result));
    PQclear(result);
    return failed; /* 0: the lease ends, and the job is queued */
}

const struct lh_reap_plugin leasehold_reap_plugin = {.version = LH_REAP_PLUGIN_VERSION, .on_lease = put_back};
