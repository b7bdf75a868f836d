/* Setting a schedule: the options of schedule add, and its call; without a daemon by the function that people have in SQL. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/admin/admin_internal.h"
#include "cli/arguments.h"
#include "cli/database.h"
#include "cli/error.h"
#include "cli/server.h"
#include "json/print.h"
#include "json/row_message.h"

#define COUNT(name)                                                                                                    \
    {                                                                                                                  \
        .option = name, .least = 1, .most = 1000                                                                       \
    }

static const struct lh_taken taken[] = {
    {.option = "time-zone"},
    {.option = "starts-at"},
    {.option = "ends-at"},
    {.option = "catch-up"},
    COUNT("catch-up-max"),
    COUNT("overlap"),
    COUNT("attempts"),
    {.option = "tick-deadline", .least = LH_US_PER_S},
    {.option = "jitter"},
    {.option = "backoff"},
    {0},
};

static const char *number(int64_t value, struct lh_arena *arena)
{
    return lh_arena_format(arena, "%lld", (long long)value);
}

static const char *duration(const Google__Protobuf__Duration *value, struct lh_arena *arena)
{
    return value == NULL ? NULL : number(lh_duration_us(value), arena);
}

static const char *timestamp(const Google__Protobuf__Timestamp *value, struct lh_arena *arena)
{
    return value == NULL ? NULL : number(lh_timestamp_us(value), arena);
}

static const Leasehold__V1__SetScheduleResponse *set(struct lh_cli *cli, const char *name,
                                                     Leasehold__V1__Schedule *schedule)
{
    Leasehold__V1__SetScheduleRequest request = LEASEHOLD__V1__SET_SCHEDULE_REQUEST__INIT;
    struct lh_arena *arena = &cli->arena;
    const char *catch_up = lh_message_word(&leasehold__v1__catch_up__descriptor, (int)schedule->catch_up, arena);
    const char *const values[] = {
        name,
        schedule->expression,
        schedule->time_zone[0] != '\0' ? schedule->time_zone : "UTC",
        timestamp(schedule->starts_at, arena),
        timestamp(schedule->ends_at, arena),
        catch_up != NULL ? catch_up : "last",
        number(schedule->catch_up_max != 0 ? schedule->catch_up_max : 100, arena),
        duration(schedule->tick_deadline, arena),
        number(schedule->overlap != 0 ? schedule->overlap : 1, arena),
        duration(schedule->jitter, arena),
        number(schedule->attempts != 0 ? schedule->attempts : 3, arena),
        duration(schedule->backoff, arena),
    };
    const struct lh_ask ask = {
        .kind = LH_ASK_AGAIN,
        .sql = "select leasehold.set_schedule($1, $2, $3, timestamptz '1970-01-01Z' + $4::bigint * interval '1 us',"
               " timestamptz '1970-01-01Z' + $5::bigint * interval '1 us', $6, $7, $8::bigint * interval '1 us', $9,"
               " coalesce($10::bigint, 0) * interval '1 us', $11, coalesce($12::bigint, 60000000) * interval '1 us')",
        .values = values,
        .value_count = 12,
        .then = LH_SCHEDULES_SQL " where s.name = $1",
        .then_count = 1};

    request.schedule = schedule;
    return lh_ask(cli, &request.base, &ask);
}

enum lh_exit lh_schedule_set(struct lh_cli *cli, const char *name, const char *expression, const char *time_zone)
{
    Leasehold__V1__Schedule schedule = LEASEHOLD__V1__SCHEDULE__INIT;
    const Leasehold__V1__SetScheduleResponse *response;
    struct lh_error error = {0};

    if (lh_check_namespace(name, &error) != LH_OK ||
        lh_take_options(&cli->args, taken, &schedule.base, &cli->arena, &error) != LH_OK)
        return lh_error_value(cli, &error);
    schedule.namespace_ = lh_take_namespace(name, &cli->arena);
    schedule.expression = (char *)(uintptr_t)expression;
    if (time_zone != NULL && time_zone[0] != '\0')
        schedule.time_zone = (char *)(uintptr_t)time_zone;
    response = set(cli, name, &schedule);
    if (response != NULL && response->schedule != NULL && !lh_print_json(cli, response->schedule)) {
        const Leasehold__V1__Schedule *stored = response->schedule;
        printf("%s: %s in %s, next %s\n", name, stored->expression, stored->time_zone,
               stored->next_at != NULL ? LH_JSON_TIMESTAMP(stored->next_at) : "never");
    }
    return cli->status;
}
