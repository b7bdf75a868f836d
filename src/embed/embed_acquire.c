/*
 * Acquire over a caller's connection, of one scope or of several at once: the SQL function of the same name, then the
 * callback for each lease, in one transaction. The lease key is made before the first attempt, so that a repetition means
 * the same acquisition.
 */
#include "embed/embed_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bounds.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/uuid.h"

#define DURATION_US (30 * LH_US_PER_S)

/* What an acquire has however many scopes it is of. */
struct terms {
    const char *owner;
    const char *lease_key;
    char *labels;
    char duration_us[24];
    char own_owner[256], own_lease_key[LH_UUID_TEXT_BYTES]; /* where the caller gave none */
};

struct acquire {
    struct terms terms;
    const char *ns;
    const char *key;
    int64_t at_least_us;
    bool is_shared;
    int32_t units;
    char *numbers;
    struct lh_embed_lease *lease;
};

/* Those that are set, as arguments: an older schema takes none. A new string. */
static char *number_arguments(const int32_t numbers[LH_ACQUIRE_NUMBER_COUNT])
{
    struct lh_buffer text = {0};

    for (size_t i = 0; i < LH_ACQUIRE_NUMBER_COUNT; i++) {
        char argument[64];
        int size = snprintf(argument, sizeof(argument), ", %s => %d", lh_acquire_numbers[i].name, (int)numbers[i]);
        if (numbers[i] != 0)
            lh_buffer_append(&text, argument, (size_t)size);
    }
    lh_buffer_append(&text, "", 1);
    return (char *)text.data;
}

/* The lease that was granted or renewed in this row. */
static enum lh_status take_row(struct lh_call *call, struct lh_embed_lease *lease, const PGresult *result, int row,
                               int64_t sent_us, struct lh_error *error)
{
    const struct lh_embed_options *options = call->options;
    enum lh_status status;

    lh_lease_of_row(lease, result, row);
    lease->deadline_us = sent_us + lease->duration_us;
    status =
        lh_call_ask(call, lease->heartbeats == 0 ? options->will_insert : options->will_heartbeat, lease, NULL, error);
    lease->principal = lease->labels = NULL;
    return status;
}

static enum lh_status acquire_work(struct lh_call *call, struct lh_error *error)
{
    static const char from[] =
        "  from leasehold.acquire(namespace => $1, key => $2, duration => $3::bigint * interval '1 microsecond',"
        "                         owner => $4, lease_key => $5::uuid, labels => $6::jsonb";
    struct acquire *acquire = call->arg;
    char at_least[24], units[12];
    const char *const values[] = {acquire->ns,
                                  acquire->key,
                                  acquire->terms.duration_us,
                                  acquire->terms.owner,
                                  acquire->terms.lease_key,
                                  acquire->terms.labels,
                                  acquire->is_shared ? units : at_least};
    const char *more = ""; /* an older schema takes none of these; a shared lease has no minimum hold */
    int64_t sent_us = lh_clock_us();
    enum lh_status status = LH_OK;
    PGresult *result;
    char *sql;

    snprintf(at_least, sizeof(at_least), "%lld",
             (long long)(acquire->at_least_us == LH_NO_MINIMUM ? 0 : acquire->at_least_us));
    snprintf(units, sizeof(units), "%d", (int)acquire->units);
    if (acquire->is_shared)
        more = ", mode => 'shared', units => $7::integer";
    else if (acquire->at_least_us != 0)
        more = ", at_least => $7::bigint * interval '1 microsecond'";
    sql = lh_format("select %s%s%s%s%s) l", lh_embed_columns, acquire->is_shared ? lh_embed_share_columns : "", from,
                    more, acquire->numbers);
    result = lh_query(call->conn, sql, values, more[0] != '\0' ? 7 : 6, error);
    free(sql);
    if (result == NULL)
        return error->status;
    if (PQntuples(result) == 0) {
        status =
            lh_error_set(error, LH_LEASE_HELD, "the lease %s is held by another, or it rests, or others wait for it",
                         LH_SCOPE_NAME(acquire->ns, acquire->key));
    } else {
        status = take_row(call, acquire->lease, result, 0, sent_us, error);
    }
    PQclear(result);
    return status;
}

static void append_json_text(struct lh_buffer *json, const char *text, size_t size)
{
    lh_buffer_append(json, "\"", 1);
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        char escape[8];
        if (c == '"' || c == '\\')
            snprintf(escape, sizeof(escape), "\\%c", c);
        else if (c < 0x20)
            snprintf(escape, sizeof(escape), "\\u%04x", c);
        else
            snprintf(escape, sizeof(escape), "%c", c);
        lh_buffer_append(json, escape, strlen(escape));
    }
    lh_buffer_append(json, "\"", 1);
}

/* {"name":"value"}; NULL where one has no '='. A new string. */
static char *labels_to_json(const char *const *labels)
{
    struct lh_buffer json = {0};

    lh_buffer_append(&json, "{", 1);
    for (size_t i = 0; labels != NULL && labels[i] != NULL; i++) {
        const char *equals = strchr(labels[i], '=');
        if (equals == NULL) {
            lh_buffer_finish(&json);
            return NULL;
        }
        if (i > 0)
            lh_buffer_append(&json, ",", 1);
        append_json_text(&json, labels[i], (size_t)(equals - labels[i]));
        lh_buffer_append(&json, ":", 1);
        append_json_text(&json, equals + 1, strlen(equals + 1));
    }
    lh_buffer_append(&json, "}", 2);
    return (char *)json.data;
}

static void default_owner(char *owner, size_t size)
{
    char host[64] = "";

    gethostname(host, sizeof(host) - 1);
    snprintf(owner, size, "%s/%s/%d", host, program_invocation_short_name, (int)getpid());
}

/* From the options; its labels are to be freed where that is LH_OK. */
static enum lh_status take_terms(struct terms *terms, const struct lh_embed_acquire_options *options,
                                 struct lh_error *error)
{
    struct lh_uuid uuid = lh_uuid_random();
    int64_t duration_us = options->duration_us != 0 ? options->duration_us : DURATION_US;

    terms->labels = labels_to_json(options->labels);
    if (terms->labels == NULL)
        return lh_bounds_refuse(error, "labels", "of the form name=value", "labels must be of the form name=value");
    lh_uuid_format(&uuid, terms->own_lease_key);
    default_owner(terms->own_owner, sizeof(terms->own_owner));
    terms->lease_key = options->lease_key != NULL ? options->lease_key : terms->own_lease_key;
    terms->owner = options->owner != NULL ? options->owner : terms->own_owner;
    snprintf(terms->duration_us, sizeof(terms->duration_us), "%lld", (long long)duration_us);
    return LH_OK;
}

static const struct lh_embed_acquire_options no_options;

enum lh_status lh_embed_acquire(PGconn *conn, const char *namespace_text, const char *key,
                                const struct lh_embed_acquire_options *options, struct lh_embed_lease *lease,
                                struct lh_error *error)
{
    struct acquire acquire = {.ns = namespace_text, .key = key, .lease = lease};
    struct lh_call call = {.conn = conn, .work = acquire_work, .arg = &acquire};
    enum lh_status status;

    if (options == NULL)
        options = &no_options;
    const int32_t numbers[] = {LH_ACQUIRE_NUMBERS(LH_NUMBER_VALUE, &options->embed)};
    if (namespace_text == NULL || key == NULL || lease == NULL)
        return lh_error_set(error, LH_INVALID_ARGUMENT, "namespace, key and lease are needed");
    if (lh_bounds_time("wait", options->wait_us, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    if (options->wait_us > 0 && conn != NULL && !lh_call_is_idle(conn))
        return lh_bounds_refuse(error, "wait", "0 in a transaction",
                                "wait must be 0 in a transaction, for what others do is not told inside of one");
    if (lh_bounds_mode(options->embed.mode, options->embed.units, options->embed.at_least_us, error) != LH_OK ||
        lh_bounds_acquire_numbers(numbers, error) != LH_OK || take_terms(&acquire.terms, options, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    acquire.at_least_us = options->embed.at_least_us;
    acquire.is_shared = options->embed.mode == LH_SHARED;
    acquire.units = options->embed.units > 0 ? options->embed.units : 1;
    acquire.numbers = number_arguments(numbers);
    call.options = &options->embed;

    status = lh_call_run(&call, error);
    if (status == LH_LEASE_HELD && options->wait_us > 0)
        status = lh_wait_for_turn(&call,
                                  &(struct lh_wait_scope){.ns = namespace_text,
                                                          .key = key,
                                                          .lease_key = acquire.terms.lease_key,
                                                          .units = acquire.is_shared ? acquire.units : 0,
                                                          .numbers = acquire.numbers},
                                  options->wait_us, error);
    free(acquire.numbers);
    free(acquire.terms.labels);
    return status;
}

/* --- several scopes --- */

struct acquire_all {
    struct terms terms;
    const struct lh_embed_scope *scopes;
    size_t count;
    struct lh_embed_lease *leases;
};

/* Values of one column of the scopes. */
enum column { NAMESPACES, KEYS, MODES, UNITS, COLUMNS };

static void fill_arrays(const struct acquire_all *all, char *arrays[COLUMNS])
{
    const char *texts[COLUMNS][LH_ACQUIRE_ALL_MAX];
    char units[LH_ACQUIRE_ALL_MAX][12];

    for (size_t i = 0; i < all->count; i++) {
        const struct lh_embed_scope *scope = &all->scopes[i];
        snprintf(units[i], sizeof(units[i]), "%d", (int)(scope->units > 0 ? scope->units : 1));
        texts[NAMESPACES][i] = scope->namespace_text;
        texts[KEYS][i] = scope->key;
        texts[MODES][i] = scope->mode == LH_SHARED ? "shared" : "exclusive";
        texts[UNITS][i] = units[i];
    }
    for (int column = 0; column < COLUMNS; column++)
        arrays[column] = lh_query_array(texts[column], all->count);
}

static enum lh_status acquire_all_work(struct lh_call *call, struct lh_error *error)
{
    struct acquire_all *all = call->arg;
    int64_t sent_us = lh_clock_us();
    char *arrays[COLUMNS];
    char *sql = lh_format(
        "select%s%s from leasehold.acquire_all(namespaces => $1, keys => $2,"
        " duration => $3::bigint * interval '1 microsecond', owner => $4, lease_key => $5::uuid, labels => $6::jsonb,"
        " modes => $7, units => $8) with ordinality l order by l.ordinality",
        lh_embed_columns, lh_embed_share_columns);
    enum lh_status status = LH_OK;
    PGresult *result;

    fill_arrays(all, arrays);
    result = lh_query(call->conn, sql,
                      (const char *const[]){arrays[NAMESPACES], arrays[KEYS], all->terms.duration_us, all->terms.owner,
                                            all->terms.lease_key, all->terms.labels, arrays[MODES], arrays[UNITS]},
                      8, error);
    for (int column = 0; column < COLUMNS; column++)
        free(arrays[column]);
    free(sql);
    if (result == NULL)
        return error->status;
    if (PQntuples(result) == 0)
        status =
            lh_error_set(error, LH_LEASE_HELD,
                         "one of the %zu scopes is held by another, or it rests, or others wait for it", all->count);
    else if ((size_t)PQntuples(result) != all->count)
        status =
            lh_error_set(error, LH_INTERNAL, "the database answered %d leases for %zu", PQntuples(result), all->count);
    else
        for (size_t i = 0; i < all->count && status == LH_OK; i++)
            status = take_row(call, &all->leases[i], result, (int)i, sent_us, error);
    PQclear(result);
    return status;
}

static enum lh_status check_scopes(const struct lh_embed_scope *scopes, size_t count, struct lh_error *error)
{
    struct lh_error words = {0};

    if (scopes == NULL || count == 0 || count > LH_ACQUIRE_ALL_MAX)
        return lh_bounds_refuse(error, "scopes", "1 to 100", "there are %zu scopes; there must be 1 to %d", count,
                                LH_ACQUIRE_ALL_MAX);
    for (size_t i = 0; i < count; i++) {
        if (scopes[i].namespace_text == NULL || scopes[i].key == NULL)
            return lh_bounds_refuse(error, "scopes", "with namespace and key",
                                    "scopes[%zu]: namespace_text and key are needed", i);
        if (lh_bounds_mode(scopes[i].mode, scopes[i].units, 0, &words) != LH_OK)
            return lh_bounds_refuse(error, words.field, words.bound, "scopes[%zu]: %.400s", i, words.message);
    }
    return LH_OK;
}

static enum lh_status refuse_options_of_one(const struct lh_embed_options *options, struct lh_error *error)
{
    const int32_t numbers[] = {LH_ACQUIRE_NUMBERS(LH_NUMBER_VALUE, options)};

    if (options->mode != LH_EXCLUSIVE || options->units != 0 || options->at_least_us != 0)
        return lh_bounds_refuse(error, "mode", "not set",
                                "mode, units and at_least_us must not be set here: each scope has its mode and units");
    for (size_t i = 0; i < LH_ACQUIRE_NUMBER_COUNT; i++)
        if (numbers[i] != 0)
            return lh_bounds_refuse(error, lh_acquire_numbers[i].name, "not set",
                                    "%s must not be set here: over SQL several scopes are never waited for",
                                    lh_acquire_numbers[i].name);
    return LH_OK;
}

enum lh_status lh_embed_acquire_all(PGconn *conn, const struct lh_embed_scope *scopes, size_t count,
                                    const struct lh_embed_acquire_options *options, struct lh_embed_lease *leases,
                                    struct lh_error *error)
{
    struct acquire_all all = {.scopes = scopes, .count = count, .leases = leases};
    struct lh_call call = {.conn = conn, .work = acquire_all_work, .arg = &all};
    enum lh_status status;

    if (options == NULL)
        options = &no_options;
    if (leases == NULL)
        return lh_bounds_refuse(error, "leases", "not NULL", "leases is missing");
    if (options->wait_us != 0)
        return lh_bounds_refuse(error, "wait", "0", "wait must be 0: over SQL several scopes are never waited for");
    if (refuse_options_of_one(&options->embed, error) != LH_OK || check_scopes(scopes, count, error) != LH_OK ||
        take_terms(&all.terms, options, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    call.options = &options->embed;
    status = lh_call_run(&call, error);
    free(all.terms.labels);
    return status;
}
