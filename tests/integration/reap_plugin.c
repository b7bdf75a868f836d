/*
 * The callback of the tests: it counts each lease, and misbehaves as REAP_MODE says. Tokens are the primary key of
 * `counted`, so a lease that is committed twice fails loudly.
 */
#include <leasehold.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int run(PGconn *conn, const char *sql, struct lh_error *error)
{
    PGresult *result = PQexec(conn, sql);
    ExecStatusType status = PQresultStatus(result);
    int failed = status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK;

    if (failed)
        snprintf(error->message, sizeof(error->message), "%s", PQresultErrorMessage(result));
    PQclear(result);
    return failed;
}

static long number_of(const struct lh_embed_lease *lease)
{
    return strtol(lease->key + 1, NULL, 10);
}

static int count(void *arg, PGconn *conn, const struct lh_embed_lease *lease, struct lh_error *error)
{
    const char *mode = getenv("REAP_MODE");
    char sql[2048];

    snprintf(sql, sizeof(sql), "insert into public.counted (token, key, pid) values (%lld, '%s', %d)",
             (long long)lease->token, lease->key, (int)getpid());
    if (run(conn, sql, error))
        return 1;
    if (mode == NULL)
        return 0;
    if (strcmp(mode, "third") == 0 && number_of(lease) % 3 == 0) {
        snprintf(error->message, sizeof(error->message), "every third of them: %.64s", lease->key);
        return 1;
    }
    if (strcmp(mode, "kill") == 0 && number_of(lease) % 10 == 0)
        return run(conn, "select pg_terminate_backend(pg_backend_pid())", error);
    if (strcmp(mode, "commit") == 0 && number_of(lease) % 10 == 0)
        return run(conn, "commit", error);
    if (strcmp(mode, "rollback") == 0 && number_of(lease) % 10 == 0)
        return run(conn, "rollback", error);
    if (strcmp(mode, "deferred") == 0 && number_of(lease) % 10 == 0)
        return run(conn, "insert into public.child values (4711)", error);
    if (strcmp(mode, "quiet") == 0 && number_of(lease) % 10 == 0) {
        run(conn, "select 1/0", error); /* and says that all is well */
        error->message[0] = '\0';
    }
    if (strcmp(mode, "query") == 0 && number_of(lease) % 10 == 0)
        return run(conn, "select pg_sleep(60)", error);
    if (strcmp(mode, "sleep") == 0 && number_of(lease) % 10 == 0)
        usleep(400000); /* slow work */
    if (strcmp(mode, "crash") == 0 && number_of(lease) % 10 == 0)
        abort();
    if (strcmp(mode, "gate") == 0 && number_of(lease) == 10)
        for (int tries = 0; access(getenv("REAP_GATE"), F_OK) != 0 && tries < 6000; tries++)
            usleep(10000);
    return 0;
}

const struct lh_reap_plugin leasehold_reap_plugin = {.version = LH_REAP_PLUGIN_VERSION, .on_lease = count};
