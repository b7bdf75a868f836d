/*
 * A worker that needs no daemon: its leases, and what they are for, are in one database, on one connection.
 *
 *     cc -o worker worker.c $(pkg-config --cflags --libs leasehold libpq)
 *     ./worker postgresql:///app jobs invoice-42
 *
 * It waits for its job's lease for at most 10 s, works in steps with a heartbeat after each, and gives the lease back.
 * The row of the job changes in the same transactions as the lease: nobody ever sees a job that is running without a
 * lease, nor one that is done and still held. It expects:
 *
 *     create table job (id text primary key, state text not null, token bigint, steps integer not null default 0);
 */
#include <leasehold.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 3

/* Inside of the lease's transaction. What fails here takes the lease's change back too. */
static int change_job(PGconn *conn, const struct lh_embed_lease *lease, const char *sql, struct lh_error *error)
{
    char token[24];
    const char *const values[] = {lease->key, token};
    PGresult *result;
    int failed;

    snprintf(token, sizeof(token), "%lld", (long long)lease->token);
    result = PQexecParams(conn, sql, 2, NULL, values, NULL, NULL, 0);
    failed = PQresultStatus(result) != PGRES_COMMAND_OK;
    if (failed)
        lh_embed_failed(conn, result, error);
    else if (strcmp(PQcmdTuples(result), "1") != 0)
        failed = snprintf(error->message, sizeof(error->message), "there is no such job, or it is not ours");
    PQclear(result);
    return failed;
}

static int on_insert(void *arg, PGconn *conn, const struct lh_embed_lease *lease, const char *words,
                     struct lh_error *error)
{
    return change_job(conn, lease, "update job set state = 'running', token = $2 where id = $1 and state <> 'done'",
                      error);
}

static int on_heartbeat(void *arg, PGconn *conn, const struct lh_embed_lease *lease, const char *words,
                        struct lh_error *error)
{
    return change_job(conn, lease, "update job set steps = steps + 1 where id = $1 and token = $2", error);
}

static int on_done(void *arg, PGconn *conn, const struct lh_embed_lease *lease, const char *words,
                   struct lh_error *error)
{
    return change_job(conn, lease, "update job set state = 'done' where id = $1 and token = $2", error);
}

static int fail(const char *what, const struct lh_error *error)
{
    fprintf(stderr, "%s: %s\n", what, error->message);
    return 1;
}

int main(int argc, char **argv)
{
    const struct lh_embed_options changes = {
        .will_insert = on_insert,
        .will_heartbeat = on_heartbeat,
        .will_release_ok = on_done,
    };
    const struct lh_embed_acquire_options options = {
        .duration_us = 30 * LH_SECOND,
        .wait_us = 10 * LH_SECOND,
        .embed = changes,
    };
    struct lh_error error = {0};
    struct lh_embed_lease lease;
    PGconn *conn;
    int status = 0;

    if (argc != 4) {
        fprintf(stderr, "usage: %s DATABASE NAMESPACE KEY\n", argv[0]);
        return 2;
    }
    conn = PQconnectdb(argv[1]);
    if (lh_embed_acquire(conn, argv[2], argv[3], &options, &lease, &error) != LH_OK) {
        PQfinish(conn);
        return fail("no lease", &error);
    }
    printf("running %s with token %lld\n", lease.key, (long long)lease.token);
    for (int step = 0; step < STEPS && status == 0; step++) /* the work itself would be here */
        if (lh_embed_heartbeat(conn, &lease, &changes, &error) != LH_OK)
            status = fail("the lease is lost", &error);
    if (status == 0 && lh_embed_release_ok(conn, &lease, "{\"steps\": 3}", &changes, &error) != LH_OK)
        status = fail("not done", &error);
    if (status == 0)
        printf("done after %lld heartbeats\n", (long long)lease.heartbeats);
    PQfinish(conn);
    return status;
}
