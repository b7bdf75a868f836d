/* ScheduleService: SetSchedule, GetSchedule, PauseSchedule, RemoveSchedule, RunScheduleNow. */
#include "service/call_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "service/words_internal.h"

#define EXPRESSION_MAX_BYTES 256
#define TIME_ZONE_MAX_BYTES 63
#define COUNT_MAX 1000
#define DAY_US (INT64_C(86400) * LH_US_PER_S)
#define SHOWN_MAX 1000

/* --- settings --- */

void lh_schedule_setting(struct lh_schedule_settings *settings, const char *name, const char *value)
{
    settings->change.names = settings->names;
    settings->change.values = settings->values;
    settings->names[settings->change.count] = name;
    settings->values[settings->change.count++] = value;
}

void lh_schedule_number(struct lh_schedule_settings *settings, const char *name, int64_t value, struct lh_arena *arena)
{
    lh_schedule_setting(settings, name, lh_arena_format(arena, "%lld", (long long)value));
}

static bool add_text(struct lh_validator *v, struct lh_schedule_settings *settings, const char *name, const char *text,
                     const char *if_empty, size_t most)
{
    char path[LH_VIOLATION_FIELD_BYTES];
    size_t size = strlen(text);

    lh_field_member(path, "schedule", name);
    lh_schedule_setting(settings, name, size == 0 ? if_empty : text);
    if ((size == 0 && if_empty == NULL) || size > most)
        return lh_violations_add(v->violations, path, "must be 1 to %zu bytes, has %zu", most, size);
    return !lh_utf8_has_control(text, size) ||
           lh_violations_add(v->violations, path, "must not contain control characters");
}

static bool add_duration(struct lh_validator *v, struct lh_schedule_settings *settings, const char *name,
                         const Google__Protobuf__Duration *duration, int64_t least_us, int64_t most_us)
{
    char path[LH_VIOLATION_FIELD_BYTES];
    int64_t duration_us;

    if (duration == NULL)
        return true;
    if (!lh_validate_duration(v, duration, least_us, most_us, lh_field_member(path, "schedule", name), &duration_us))
        return false;
    lh_schedule_number(settings, name, duration_us, v->arena);
    return true;
}

static bool add_count(struct lh_validator *v, struct lh_schedule_settings *settings, const char *name, int32_t count,
                      int32_t if_zero)
{
    char path[LH_VIOLATION_FIELD_BYTES];
    int32_t number;

    if (!lh_validate_count(v, count, if_zero, COUNT_MAX, lh_field_member(path, "schedule", name), &number))
        return false;
    lh_schedule_number(settings, name, number, v->arena);
    return true;
}

static bool add_time(struct lh_validator *v, struct lh_schedule_settings *settings, const char *name,
                     const Google__Protobuf__Timestamp *timestamp, int64_t *time_us)
{
    char path[LH_VIOLATION_FIELD_BYTES];

    if (timestamp == NULL)
        return true;
    if (!lh_validate_timestamp(v, timestamp, lh_field_member(path, "schedule", name), time_us))
        return false;
    lh_schedule_number(settings, name, *time_us, v->arena);
    return true;
}

static bool add_catch_up(struct lh_validator *v, struct lh_schedule_settings *settings, Leasehold__V1__CatchUp catch_up)
{
    static const char *const names[] = {"last", "none", "last", "all"};

    if ((size_t)catch_up >= sizeof(names) / sizeof(names[0]))
        return lh_violations_add(v->violations, "schedule.catch_up", "must be one of CatchUp, not %d", (int)catch_up);
    lh_schedule_setting(settings, "catch_up", names[catch_up]);
    return true;
}

bool lh_schedule_from_request(struct lh_validator *v, const Leasehold__V1__Schedule *schedule,
                              struct lh_schedule_settings *settings)
{
    int64_t starts_us = INT64_MIN, ends_us = INT64_MAX;
    bool is_valid;

    if (schedule == NULL)
        return lh_violations_add(v->violations, "schedule", "must be given");
    is_valid = lh_validate_schedule_name(v, schedule->namespace_, "schedule.namespace", &settings->change.ns);
    is_valid &= add_text(v, settings, "expression", schedule->expression, NULL, EXPRESSION_MAX_BYTES);
    is_valid &= add_text(v, settings, "time_zone", schedule->time_zone, "UTC", TIME_ZONE_MAX_BYTES);
    is_valid &= add_time(v, settings, "starts_at", schedule->starts_at, &starts_us);
    is_valid &= add_time(v, settings, "ends_at", schedule->ends_at, &ends_us);
    if (starts_us >= ends_us)
        is_valid = lh_violations_add(v->violations, "schedule.ends_at", "must be after starts_at");
    is_valid &= add_catch_up(v, settings, schedule->catch_up);
    is_valid &= add_count(v, settings, "catch_up_max", schedule->catch_up_max, 100);
    is_valid &= add_duration(v, settings, "tick_deadline", schedule->tick_deadline, LH_US_PER_S, 366 * DAY_US);
    is_valid &= add_count(v, settings, "overlap", schedule->overlap, 1);
    is_valid &= add_duration(v, settings, "jitter", schedule->jitter, 0, DAY_US);
    is_valid &= add_count(v, settings, "attempts", schedule->attempts, 3);
    return add_duration(v, settings, "backoff", schedule->backoff, 0, DAY_US) && is_valid;
}

/* --- answers --- */

/* In SQL the name of a schedule is "name". */
static void refuse(struct lh_rpc_call *call, const struct lh_error *error, const char *path)
{
    const char *field = strcmp(error->field, "name") == 0 ? "namespace" : error->field;
    struct lh_violations violations = {0};
    char below[LH_VIOLATION_FIELD_BYTES];

    if (path[0] != '\0')
        field = lh_field_member(below, path, field);
    if (error->bound[0] != '\0')
        lh_violations_add(&violations, field, "must be %s", error->bound);
    else
        lh_violations_add(&violations, field, "is refused: %s", error->message);
    lh_call_refuse(call, &violations);
}

bool lh_schedule_is_answered(struct lh_rpc_call *call, enum lh_status status, const struct lh_error *error,
                             const char *ns, const char *path)
{
    if (call == NULL || status == LH_OK)
        return call != NULL;
    if (status == LH_INVALID_ARGUMENT && error != NULL && error->field[0] != '\0')
        refuse(call, error, path);
    else
        lh_call_fail(call, status, error, ns, NULL);
    return false;
}

static const char *path_of(const struct lh_store_call *store_call)
{
    bool is_set = store_call->call != NULL &&
                  lh_method_of(store_call->call)->request == &leasehold__v1__set_schedule_request__descriptor;

    return is_set ? "schedule" : "";
}

/* The answer is the row, in the message that the table of methods names. */
static void on_row(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_rows *rows)
{
    struct lh_store_call *store_call = arg;

    if (lh_schedule_is_answered(store_call->call, status, error, store_call->ns, path_of(store_call)))
        lh_store_call_reply(
            store_call, lh_rows_message(lh_method_of(store_call->call)->response, rows, &store_call->service->scratch));
    lh_store_call_destroy(store_call);
}

/* "1764298800000000,..." */
static void add_instants(Leasehold__V1__GetScheduleResponse *response, const char *cell, struct lh_arena *arena)
{
    char *rest = (char *)(uintptr_t)cell;

    response->next = lh_arena_alloc(arena, SHOWN_MAX * sizeof(*response->next));
    while (rest != NULL && *rest != '\0' && response->n_next < SHOWN_MAX) {
        response->next[response->n_next++] = lh_message_timestamp(strtoll(rest, &rest, 10), arena);
        rest += *rest == ',';
    }
}

static void on_shown(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_rows *rows)
{
    struct lh_store_call *store_call = arg;
    struct lh_arena *arena = &store_call->service->scratch;
    Leasehold__V1__GetScheduleResponse response = LEASEHOLD__V1__GET_SCHEDULE_RESPONSE__INIT;

    if (lh_schedule_is_answered(store_call->call, status, error, store_call->ns, "")) {
        response.ticks = lh_arena_alloc(arena, (rows->row_count + 1) * sizeof(*response.ticks));
        if (rows->row_count > 0) {
            response.schedule = lh_row_message(&leasehold__v1__schedule__descriptor, rows, 0, arena);
            add_instants(&response, lh_rows_cell(rows, 0, "next"), arena);
        }
        for (size_t i = 0; i < rows->row_count; i++)
            if (lh_rows_cell(rows, i, "at") != NULL)
                response.ticks[response.n_ticks++] = lh_row_message(&leasehold__v1__tick__descriptor, rows, i, arena);
        lh_store_call_reply(store_call, &response.base);
    }
    lh_store_call_destroy(store_call);
}

/* --- requests --- */

static void ask(struct lh_asked *asked, bool is_valid, enum lh_admin_verb verb, struct lh_schedule_settings *settings,
                lh_rows_cb *on_done)
{
    const char *ns = settings->change.ns;
    struct lh_admin_request wanted = {.verb = verb, .ns = ns, .change = &settings->change};
    struct lh_requester by;

    if (!lh_asked_check(asked, is_valid) || !lh_permit(asked->call, lh_method_of(asked->call)->right, ns))
        return;
    by = lh_call_requester(asked->call);
    wanted.by = &by;
    lh_store_call_administer(lh_store_call_create(asked->call, ns, NULL), &wanted, on_done);
}

void lh_set_schedule_on_request(struct lh_asked *asked, const void *message)
{
    const Leasehold__V1__SetScheduleRequest *request = message;
    struct lh_schedule_settings settings = {0};

    ask(asked, lh_schedule_from_request(&asked->v, request->schedule, &settings), LH_ADMIN_SET_SCHEDULE, &settings,
        on_row);
}

void lh_get_schedule_on_request(struct lh_asked *asked, const void *message)
{
    const Leasehold__V1__GetScheduleRequest *request = message;
    struct lh_schedule_settings settings = {0};
    struct lh_validator *v = &asked->v;
    int32_t next = 0, last = 0;
    bool is_valid = lh_validate_schedule_name(v, request->namespace_, "namespace", &settings.change.ns);

    is_valid &= lh_validate_count(v, request->next, 5, SHOWN_MAX, "next", &next);
    is_valid &= lh_validate_count(v, request->last, 10, SHOWN_MAX, "last", &last);
    lh_schedule_number(&settings, "next", next, v->arena);
    lh_schedule_number(&settings, "last", last, v->arena);
    ask(asked, is_valid, LH_ADMIN_GET_SCHEDULE, &settings, on_shown);
}

void lh_pause_schedule_on_request(struct lh_asked *asked, const void *message)
{
    const Leasehold__V1__PauseScheduleRequest *request = message;
    struct lh_schedule_settings settings = {0};

    lh_schedule_setting(&settings, "paused", request->paused ? "true" : "false");
    ask(asked, lh_validate_schedule_name(&asked->v, request->namespace_, "namespace", &settings.change.ns),
        LH_ADMIN_PAUSE_SCHEDULE, &settings, on_row);
}

/* A RemoveScheduleRequest and a RunScheduleNowRequest have types of their own, which are the same. */
_Static_assert(sizeof(Leasehold__V1__RemoveScheduleRequest) == sizeof(Leasehold__V1__RunScheduleNowRequest),
               "requests");

static void ask_by_name(struct lh_asked *asked, const Leasehold__V1__RemoveScheduleRequest *request,
                        enum lh_admin_verb verb)
{
    struct lh_schedule_settings settings = {.change = {.names = settings.names, .values = settings.values}};

    ask(asked, lh_validate_schedule_name(&asked->v, request->namespace_, "namespace", &settings.change.ns), verb,
        &settings, on_row);
}

void lh_remove_schedule_on_request(struct lh_asked *asked, const void *message)
{
    ask_by_name(asked, message, LH_ADMIN_REMOVE_SCHEDULE);
}

void lh_run_schedule_now_on_request(struct lh_asked *asked, const void *message)
{
    ask_by_name(asked, message, LH_ADMIN_RUN_SCHEDULE_NOW);
}
