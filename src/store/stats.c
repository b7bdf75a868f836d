/* Counts for the metrics, the survey of the database, and behind it the standing of each namespace. */

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "pg/migrate.h"
#include "store/store_internal.h"

/* A survey comes every 15 s. */
#define PRIVILEGES_REST 40

static void add_connection(struct lh_store_stats *stats, enum lh_store_role role, bool is_up, uint64_t connects)
{
    stats->connections[role]++;
    stats->connections_up[role] += is_up;
    stats->reconnects[role] += connects > 0 ? connects - 1 : 0;
}

void lh_pg_store_measure(const struct pg_store *store, struct lh_store_stats *stats)
{
    struct lh_pg_listener_stats listener;
    struct lh_pg_server_facts server;
    uint64_t refused = store->stats.control_refused;

    memset(stats, 0, sizeof(*stats));
    for (unsigned i = 0; i < store->lane_count; i++) {
        const struct lh_pg_conn *conn = store->lanes[i].conn;
        enum lh_store_role role = store->lanes[i].is_hook ? LH_STORE_HOOK_LANE : LH_STORE_LANE;
        add_connection(stats, role, lh_pg_conn_is_up(conn), lh_pg_conn_connects(conn));
    }
    add_connection(stats, LH_STORE_CONTROL, lh_pg_conn_is_up(store->control), lh_pg_conn_connects(store->control));
    lh_pg_listener_stats(store->listener, &listener);
    add_connection(stats, LH_STORE_LISTENER, lh_pg_listener_is_up(store->listener), listener.connects);
    stats->listener_checks = listener.checks;
    stats->listener_checks_failed = listener.checks_failed;
    stats->notifications = listener.notifications;
    lh_pg_servers_facts(store->servers, &server);
    stats->timeline = server.timeline;
    stats->failovers = server.failovers;
    stats->has_core = store->has_core;
    stats->keeping_fails = store->keeping[0] != '\0';
    stats->privileges_differ = store->privileges[0] != '\0';
    stats->control_in_flight = lh_pg_conn_in_flight(store->control);
    stats->max_control = store->options.max_control;
    stats->control_refused = refused;
}

void lh_store_stats(const struct lh_store *base, struct lh_store_stats *stats)
{
    const struct pg_store *store = (const struct pg_store *)(const void *)base;

    if (store->state < STORE_CLOSING) {
        lh_pg_store_measure(store, stats);
        return;
    }
    *stats = store->stats;
    memset(stats->connections_up, 0, sizeof(stats->connections_up));
    stats->control_in_flight = 0;
}

static const char *text_or(const PGresult *result, int column, const char *other)
{
    const char *text = lh_pg_text(result, 0, column);
    return text == NULL ? other : text;
}

/* What is found is told when it changes; status and /readyz have it meanwhile. */
static void keep_finding(struct pg_store *store, char finding[LH_STORE_FINDING_BYTES], const char *words)
{
    char before[LH_STORE_FINDING_BYTES];

    memcpy(before, finding, sizeof(before));
    snprintf(finding, sizeof(before), "%s", words);
    if (strcmp(before, finding) == 0)
        return;
    if (finding[0] != '\0')
        lh_warn("%s%s%s", store->name, *store->name != '\0' ? ": " : "", finding);
    else
        lh_info("%s%sno longer: %s", store->name, *store->name != '\0' ? ": " : "", before);
}

static void read_privileges(struct control_call *call, enum lh_status status, const PGresult *result,
                            const struct lh_error *error)
{
    char words[LH_PRIVILEGES_BYTES];

    if (status != LH_OK)
        return;
    lh_privileges_describe(result, words);
    keep_finding(call->store, call->store->privileges, words);
}

/* That takes 30 ms of the database, and what it finds changes when a person does something. Those of other functions are not known. */
static void look_at_privileges(struct pg_store *store, const char *functions)
{
    const struct lh_pg_statement *statement = &store->look_at_privileges;

    if (statement->sql == NULL || strcmp(functions, store->options.functions_checksum) != 0)
        return;
    if (store->privileges_rest > 0 && store->privileges[0] == '\0') {
        store->privileges_rest--;
        return;
    }
    store->privileges_rest = PRIVILEGES_REST;
    lh_control_call_send(lh_control_call_begin(store, read_privileges, NULL, NULL), statement);
}

static void read_findings(struct control_call *call, enum lh_status status, const PGresult *result,
                          const struct lh_error *error)
{
    static const char *const names[] = {"keeping", "functions"};
    int at[2];

    if (status != LH_OK)
        return;
    lh_pg_result_columns(result, names, at, 2);
    keep_finding(call->store, call->store->keeping, text_or(result, at[0], ""));
    look_at_privileges(call->store, text_or(result, at[1], ""));
}

/* --- the standing of each namespace --- */

/* At most a hundredth of the time of one of the database's processes, and of one connection. */
#define REST_FACTOR 100

static void read_namespaces(struct control_call *call, enum lh_status status, const PGresult *result,
                            const struct lh_error *error)
{
    static const char *const names[] = {"namespace", "overdue",        "silent",         "held_too_long",
                                        "expired",   "oldest_hold_us", "longest_wait_us"};
    struct pg_store *store = call->store;
    int64_t now_us = lh_clock_us();
    int at[7];

    store->standings_due_us = now_us + REST_FACTOR * (now_us - store->standings_asked_us);
    store->is_looking_at_namespaces = false;
    if (status != LH_OK)
        return;
    lh_pg_result_columns(result, names, at, 7);
    store->standing_count = 0;
    for (int row = 0; row < PQntuples(result) && row < LH_STORE_STANDINGS_MAX; row++) {
        const char *ns = lh_pg_text(result, row, at[0]);
        struct lh_store_standing *standing = &store->standings[store->standing_count++];
        snprintf(standing->ns, sizeof(standing->ns), "%s", ns == NULL ? "" : ns);
        standing->overdue = (uint64_t)lh_pg_int8(result, row, at[1]);
        standing->silent = (uint64_t)lh_pg_int8(result, row, at[2]);
        standing->held_too_long = (uint64_t)lh_pg_int8(result, row, at[3]);
        standing->expired = (uint64_t)lh_pg_int8(result, row, at[4]);
        standing->oldest_hold_us = lh_pg_int8(result, row, at[5]);
        standing->longest_wait_us = lh_pg_int8(result, row, at[6]);
    }
}

/* Reads the standing of each namespace if that is due: less often the longer the database takes for it. */
static void look_at_namespaces(struct pg_store *store)
{
    static const struct lh_pg_statement statement =
        LH_PG_STATEMENT("survey_namespaces", "select * from leasehold_internal.survey_namespaces($1)", LH_PG_INT4);
    struct control_call *call;

    if (store->is_looking_at_namespaces || lh_clock_us() < store->standings_due_us)
        return;
    store->standings_asked_us = lh_clock_us();
    call = lh_control_call_begin(store, read_namespaces, NULL, NULL);
    /* The coordinator's own calls do not wait behind it. */
    call->is_clients = true;
    lh_pg_add_int4(&store->params, store->options.named_namespaces);
    store->is_looking_at_namespaces = lh_control_call_send(call, &statement) == LH_OK;
}

const struct lh_store_standing *lh_store_standings(const struct lh_store *base, size_t *count)
{
    const struct pg_store *store = (const struct pg_store *)(const void *)base;

    *count = store->standing_count;
    return store->standings;
}

/* --- the ticks of each schedule --- */

static void read_ticks(struct control_call *call, enum lh_status status, const PGresult *result,
                       const struct lh_error *error)
{
    static const char *const names[] = {"schedule", "missed", "dead", "running", "waiting"};
    struct pg_store *store = call->store;
    int at[5];

    if (status != LH_OK)
        return;
    lh_pg_result_columns(result, names, at, 5);
    store->ticks_count = 0;
    for (int row = 0; row < PQntuples(result) && row < LH_STORE_STANDINGS_MAX; row++) {
        const char *schedule = lh_pg_text(result, row, at[0]);
        struct lh_store_ticks *ticks = &store->ticks[store->ticks_count++];
        snprintf(ticks->schedule, sizeof(ticks->schedule), "%s", schedule == NULL ? "" : schedule);
        ticks->missed = (uint64_t)lh_pg_int8(result, row, at[1]);
        ticks->dead = (uint64_t)lh_pg_int8(result, row, at[2]);
        ticks->running = (uint64_t)lh_pg_int8(result, row, at[3]);
        ticks->waiting = (uint64_t)lh_pg_int8(result, row, at[4]);
    }
}

/* By indexes of ticks that have not ended, and of those that ended badly. */
static void look_at_ticks(struct pg_store *store)
{
    static const struct lh_pg_statement statement =
        LH_PG_STATEMENT("survey_ticks", "select * from leasehold_internal.survey_ticks($1)", LH_PG_INT4);
    struct control_call *call = lh_control_call_begin(store, read_ticks, NULL, NULL);

    call->is_clients = true;
    lh_pg_add_int4(&store->params, store->options.named_namespaces);
    lh_control_call_send(call, &statement);
}

const struct lh_store_ticks *lh_store_ticks(const struct lh_store *base, size_t *count)
{
    const struct pg_store *store = (const struct pg_store *)(const void *)base;

    *count = store->ticks_count;
    return store->ticks;
}

static void read_hand_overs(struct control_call *call, enum lh_status status, const PGresult *result,
                            const struct lh_error *error)
{
    static const char *const names[] = {"open", "refused", "unanswered"};
    int at[3];

    if (status != LH_OK)
        return;
    lh_pg_result_columns(result, names, at, 3);
    call->store->hand_overs = (struct lh_store_hand_overs){.open = (uint64_t)lh_pg_int8(result, 0, at[0]),
                                                           .refused = (uint64_t)lh_pg_int8(result, 0, at[1]),
                                                           .unanswered = (uint64_t)lh_pg_int8(result, 0, at[2])};
}

static void look_at_hand_overs(struct pg_store *store)
{
    static const struct lh_pg_statement statement = {
        "survey_hand_overs", "select * from leasehold_internal.survey_hand_overs()", 0, {0}};
    struct control_call *call = lh_control_call_begin(store, read_hand_overs, NULL, NULL);

    call->is_clients = true;
    lh_control_call_send(call, &statement);
}

struct lh_store_hand_overs lh_store_hand_overs(const struct lh_store *base)
{
    return ((const struct pg_store *)(const void *)base)->hand_overs;
}

/* --- the survey --- */

static void read_survey(struct control_call *call, enum lh_status status, const PGresult *result,
                        const struct lh_error *error)
{
    static const char *const names[] = {"held",        "oldest_us",          "oldest_pid",
                                        "oldest_user", "oldest_application", "oldest_state"};
    lh_survey_cb *on_done = (lh_survey_cb *)call->on_done;
    struct lh_survey_answer answer = {.oldest = ""};
    char who[512];
    int at[6];

    if (status != LH_OK) {
        on_done(call->arg, status, error, NULL);
        return;
    }
    lh_pg_result_columns(result, names, at, 6);
    answer.held = lh_pg_int8(result, 0, at[0]);
    if (!lh_pg_is_null(result, 0, at[1]))
        answer.oldest_us = lh_pg_int8(result, 0, at[1]);
    if (!lh_pg_is_null(result, 0, at[2])) {
        snprintf(who, sizeof(who), "pid=%d user=%s application=%s state=%s", (int)lh_pg_int4(result, 0, at[2]),
                 text_or(result, at[3], "?"), text_or(result, at[4], ""), text_or(result, at[5], "?"));
        answer.oldest = who;
    }
    on_done(call->arg, LH_OK, NULL, &answer);
}

enum lh_status lh_pg_store_survey(struct lh_store *base, lh_survey_cb *on_done, void *arg)
{
    static const struct lh_pg_statement statement = {"survey", "select * from leasehold_internal.survey()", 0, {0}};
    static const struct lh_pg_statement findings = {"findings", "select * from leasehold_internal.findings()", 0, {0}};
    struct pg_store *store = pg_store_of(base);

    lh_control_call_send(lh_control_call_begin(store, read_findings, NULL, NULL), &findings);
    look_at_namespaces(store);
    look_at_ticks(store);
    look_at_hand_overs(store);
    return lh_control_call_send(lh_control_call_begin(store, read_survey, (void (*)(void))on_done, arg), &statement);
}
