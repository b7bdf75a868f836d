/*
 * The calls of ScheduleService, and the same without a daemon: by the functions and tables that people have in SQL, as
 * the same messages.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/admin/admin_internal.h"
#include "cli/arguments.h"
#include "cli/database.h"
#include "cli/error.h"
#include "cli/server.h"
#include "json/row_message.h"

const char *const lh_catch_up_names[4] = {"", "none", "last", "all"};

/* --- without a daemon --- */

#define SCHEDULES                                                                                                      \
    "select s.name as namespace, s.expression, s.time_zone, s.catch_up, s.catch_up_max,"                               \
    " s.overlap, s.attempts, s.paused, u.running, u.dead, s.error as trouble,"                                         \
    " (extract(epoch from s.starts_at) * 1000000)::bigint as starts_at,"                                               \
    " (extract(epoch from s.ends_at) * 1000000)::bigint as ends_at,"                                                   \
    " (extract(epoch from s.tick_deadline) * 1000000)::bigint as tick_deadline,"                                       \
    " (extract(epoch from s.jitter) * 1000000)::bigint as jitter,"                                                     \
    " (extract(epoch from s.backoff) * 1000000)::bigint as backoff,"                                                   \
    " (extract(epoch from s.created_at) * 1000000)::bigint as created_at,"                                             \
    " (extract(epoch from s.updated_at) * 1000000)::bigint as updated_at,"                                             \
    " (extract(epoch from u.last_done) * 1000000)::bigint as last_done_at,"                                            \
    " case when not s.paused then (extract(epoch from s.next_at) * 1000000)::bigint end as next_at,"                   \
    " (select coalesce(sum(t.instants), 0)::bigint from leasehold.tick t"                                              \
    "   where t.schedule = s.name and t.state = 'missed') as missed"                                                   \
    "  from leasehold.schedule s join leasehold.schedule_status u on u.name = s.name"
#define TICKS                                                                                                          \
    "select t.schedule as namespace, t.state, t.attempts as attempt, t.token, t.owner,"                                \
    " (extract(epoch from t.at) * 1000000)::bigint as at,"                                                             \
    " (extract(epoch from t.due_at) * 1000000)::bigint as due_at,"                                                     \
    " (extract(epoch from t.next_try_at) * 1000000)::bigint as next_try_at,"                                           \
    " (extract(epoch from t.started_at) * 1000000)::bigint as started_at,"                                             \
    " (extract(epoch from t.ended_at) * 1000000)::bigint as ended_at,"                                                 \
    " (extract(epoch from t.until_at) * 1000000)::bigint as until_at,"                                                 \
    " t.result::text as result, t.error, t.instants, t.by_hand from leasehold.tick t"

#define SHOWN_NEXT 5
#define SHOWN_LAST 10

/* The dotted name, in the arena. */
static char *dotted(const Leasehold__V1__Namespace *name, struct lh_arena *arena)
{
    char text[LH_NAMESPACE_MAX_BYTES + LH_NAMESPACE_MAX_SEGMENTS] = "";

    for (size_t i = 0; i < name->n_segments; i++) {
        size_t size = strlen(text);
        snprintf(text + size, sizeof(text) - size, "%s%s", i > 0 ? "." : "", name->segments[i]);
    }
    return lh_arena_strdup(arena, text);
}

static const char *number(int64_t value, struct lh_arena *arena)
{
    char text[24];

    snprintf(text, sizeof(text), "%lld", (long long)value);
    return lh_arena_strdup(arena, text);
}

static const char *duration(const Google__Protobuf__Duration *value, struct lh_arena *arena)
{
    return value == NULL ? NULL : number(lh_duration_us(value), arena);
}

static const char *timestamp(const Google__Protobuf__Timestamp *value, struct lh_arena *arena)
{
    return value == NULL ? NULL : number(lh_timestamp_us(value), arena);
}

/* What a statement answers, in a message of that type. */
static void *ask(const struct lh_cli *cli, enum lh_database_use use, const char *sql, const char *const *values,
                 size_t count, const ProtobufCMessageDescriptor *type, struct lh_arena *arena, enum lh_exit *status)
{
    struct lh_rows rows = {0};

    *status = lh_database_rows(cli, use, sql, values, count, arena, &rows);
    return *status == LH_EXIT_DONE ? lh_rows_message(type, &rows, arena) : NULL;
}

/* The schedule that was just changed by a function of this statement. */
static void *ask_changed(const struct lh_cli *cli, const char *sql, const char *const *values, size_t count,
                         const ProtobufCMessageDescriptor *type, struct lh_arena *arena, enum lh_exit *status)
{
    struct lh_rows rows = {0};

    *status = lh_database_rows(cli, LH_DATABASE_WRITE, sql, values, count, arena, &rows);
    if (*status != LH_EXIT_DONE)
        return NULL;
    return ask(cli, LH_DATABASE_WRITE, SCHEDULES " where s.name = $1", values, 1, type, arena, status);
}

static void *set(const struct lh_cli *cli, const Leasehold__V1__Schedule *schedule, struct lh_arena *arena,
                 enum lh_exit *status)
{
    static const char sql[] =
        "select leasehold.set_schedule($1, $2, $3, timestamptz '1970-01-01Z' + $4::bigint * interval '1 us',"
        " timestamptz '1970-01-01Z' + $5::bigint * interval '1 us', $6, $7, $8::bigint * interval '1 us', $9,"
        " coalesce($10::bigint, 0) * interval '1 us', $11, coalesce($12::bigint, 60000000) * interval '1 us')";
    const char *const values[] = {
        dotted(schedule->namespace_, arena),
        schedule->expression,
        schedule->time_zone[0] != '\0' ? schedule->time_zone : "UTC",
        timestamp(schedule->starts_at, arena),
        timestamp(schedule->ends_at, arena),
        schedule->catch_up != 0 ? lh_catch_up_names[schedule->catch_up] : "last",
        number(schedule->catch_up_max != 0 ? schedule->catch_up_max : 100, arena),
        duration(schedule->tick_deadline, arena),
        number(schedule->overlap != 0 ? schedule->overlap : 1, arena),
        duration(schedule->jitter, arena),
        number(schedule->attempts != 0 ? schedule->attempts : 3, arena),
        duration(schedule->backoff, arena),
    };

    return ask_changed(cli, sql, values, 12, &leasehold__v1__set_schedule_response__descriptor, arena, status);
}

static void *pause_or_resume(const struct lh_cli *cli, const Leasehold__V1__PauseScheduleRequest *request,
                             struct lh_arena *arena, enum lh_exit *status)
{
    const char *const values[] = {dotted(request->namespace_, arena)};

    return ask_changed(cli,
                       request->paused ? "select leasehold.pause_schedule($1, true)"
                                       : "select leasehold.pause_schedule($1, false)",
                       values, 1, &leasehold__v1__pause_schedule_response__descriptor, arena, status);
}

static void *get(const struct lh_cli *cli, const Leasehold__V1__GetScheduleRequest *request, struct lh_arena *arena,
                 enum lh_exit *status)
{
    static const char instants[] =
        "select (extract(epoch from i) * 1000000)::bigint as at from leasehold.schedule s cross join lateral"
        " leasehold.schedule_instants(s.expression, s.time_zone,"
        " greatest(clock_timestamp(), s.starts_at - interval '1 s'), $2) i"
        " where s.name = $1 and not s.paused and (s.ends_at is null or i <= s.ends_at) order by i";
    Leasehold__V1__GetScheduleResponse *response =
        lh_message_new(&leasehold__v1__get_schedule_response__descriptor, arena);
    const char *name = dotted(request->namespace_, arena);
    const char *next[] = {name, number(request->next != 0 ? request->next : SHOWN_NEXT, arena)};
    const char *last[] = {name, number(request->last != 0 ? request->last : SHOWN_LAST, arena)};
    struct lh_rows rows = {0};

    *status = lh_database_rows(cli, LH_DATABASE_READ, SCHEDULES " where s.name = $1", next, 1, arena, &rows);
    if (*status != LH_EXIT_DONE)
        return NULL;
    if (rows.row_count == 0) {
        *status = lh_error_print("there is no schedule %s", name);
        return NULL;
    }
    response->schedule = lh_row_message(&leasehold__v1__schedule__descriptor, &rows, 0, arena);
    *status = lh_database_rows(cli, LH_DATABASE_READ, instants, next, 2, arena, &rows);
    if (*status != LH_EXIT_DONE)
        return NULL;
    response->next = lh_arena_alloc(arena, (rows.row_count + 1) * sizeof(*response->next));
    for (; response->n_next < rows.row_count; response->n_next++)
        response->next[response->n_next] =
            lh_message_timestamp(strtoll(lh_rows_cell(&rows, response->n_next, "at"), NULL, 10), arena);
    *status =
        lh_database_rows(cli, LH_DATABASE_READ, TICKS " where t.schedule = $1 order by t.at desc limit $2::bigint",
                         last, 2, arena, &rows);
    if (*status != LH_EXIT_DONE)
        return NULL;
    response->ticks = lh_arena_alloc(arena, (rows.row_count + 1) * sizeof(*response->ticks));
    for (; response->n_ticks < rows.row_count; response->n_ticks++)
        response->ticks[response->n_ticks] =
            lh_row_message(&leasehold__v1__tick__descriptor, &rows, response->n_ticks, arena);
    return response;
}

static void *by_database(const struct lh_cli *cli, const ProtobufCMessage *message, struct lh_arena *arena,
                         enum lh_exit *status)
{
    const void *request = message;
    const char *name;

    if (message->descriptor == &leasehold__v1__set_schedule_request__descriptor)
        return set(cli, ((const Leasehold__V1__SetScheduleRequest *)request)->schedule, arena, status);
    if (message->descriptor == &leasehold__v1__pause_schedule_request__descriptor)
        return pause_or_resume(cli, request, arena, status);
    if (message->descriptor == &leasehold__v1__get_schedule_request__descriptor)
        return get(cli, request, arena, status);
    if (message->descriptor == &leasehold__v1__list_schedules_request__descriptor) {
        const Leasehold__V1__ListSchedulesRequest *list = request;
        const Leasehold__V1__Namespace ns = {.n_segments = list->n_namespace_, .segments = list->namespace_};
        name = dotted(&ns, arena);
        return ask(cli, LH_DATABASE_READ,
                   SCHEDULES " where $1 = '' or s.name = $1 or starts_with(s.name, $1 || '.') order by s.name", &name,
                   1, &leasehold__v1__list_schedules_response__descriptor, arena, status);
    }
    /* The two others have a name alone. */
    name = dotted(((const Leasehold__V1__RemoveScheduleRequest *)request)->namespace_, arena);
    if (message->descriptor == &leasehold__v1__remove_schedule_request__descriptor)
        return ask(cli, LH_DATABASE_WRITE, "select leasehold.remove_schedule($1) as removed", &name, 1,
                   &leasehold__v1__remove_schedule_response__descriptor, arena, status);
    return ask(cli, LH_DATABASE_WRITE,
               "select extract(epoch from leasehold.run_schedule_now($1))::bigint as seconds, 0 as nanos", &name, 1,
               &leasehold__v1__run_schedule_now_response__descriptor, arena, status);
}

/* --- calls --- */

void *lh_schedule_call(const struct lh_cli *cli, ProtobufCMessage *request, struct lh_arena *arena,
                       struct lh_reply *reply, enum lh_exit *status)
{
    static const struct {
        const ProtobufCMessageDescriptor *request;
        const char *method;
        enum lh_repeat repeat;
    } methods[] = {
        {&leasehold__v1__set_schedule_request__descriptor, "SetSchedule", LH_REPEAT},
        {&leasehold__v1__get_schedule_request__descriptor, "GetSchedule", LH_REPEAT},
        {&leasehold__v1__pause_schedule_request__descriptor, "PauseSchedule", LH_REPEAT},
        {&leasehold__v1__remove_schedule_request__descriptor, "RemoveSchedule", LH_NO_REPEAT},
        /* Within a second a repeat finds the same tick; later it would make another one. */
        {&leasehold__v1__run_schedule_now_request__descriptor, "RunScheduleNow", LH_NO_REPEAT},
    };
    const ProtobufCServiceDescriptor *service = &leasehold__v1__schedule_service__descriptor;

    *reply = (struct lh_reply){0};
    if (cli->uses_database)
        return by_database(cli, request, arena, status);
    if (request->descriptor == &leasehold__v1__list_schedules_request__descriptor)
        *status = lh_server_list(cli, service, "ListSchedules", request, 0, reply);
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
        if (request->descriptor == methods[i].request)
            *status = lh_server_ask(cli, service, methods[i].method, request, methods[i].repeat, reply);
    return *status == LH_EXIT_DONE ? reply->message : NULL;
}
