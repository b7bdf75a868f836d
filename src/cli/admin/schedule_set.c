/* Setting a schedule: the options of schedule add, and its call. */
#include "cli/admin/admin_internal.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "cli/arguments.h"
#include "cli/error.h"
#include "cli/server.h"
#include "json/print.h"

enum lh_status lh_schedule_take_count(const struct lh_args *args, const char *option, int32_t *value,
                                      struct lh_error *error)
{
    const char *text = lh_args_value(args, option);
    int64_t number;

    if (text == NULL)
        return LH_OK;
    if (lh_check_number(option, text, 1, 1000, &number, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    *value = (int32_t)number;
    return LH_OK;
}

static enum lh_status take_duration(const struct lh_args *args, const char *option, int64_t least_us,
                                    Google__Protobuf__Duration *message, Google__Protobuf__Duration **field,
                                    struct lh_error *error)
{
    const char *text = lh_args_value(args, option);
    int64_t duration_us;

    if (text == NULL)
        return LH_OK;
    if (lh_check_duration(option, text, least_us, &duration_us, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    *message = lh_duration_message(duration_us);
    *field = message;
    return LH_OK;
}

/* "2026-11-28T03:00:00Z", "2026-11-28T04:00:00+01:00", "2026-11-28". */
static enum lh_status take_time(const struct lh_args *args, const char *option, Google__Protobuf__Timestamp *message,
                                Google__Protobuf__Timestamp **field, struct lh_error *error)
{
    static const char *const formats[] = {"%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M%z", "%Y-%m-%d"};
    const char *text = lh_args_value(args, option), *rest = NULL;
    struct tm parts;
    int64_t offset_s;

    if (text == NULL)
        return LH_OK;
    for (size_t i = 0; i < 3 && (rest == NULL || *rest != '\0'); i++) {
        memset(&parts, 0, sizeof(parts));
        rest = strptime(text, formats[i], &parts);
    }
    if (rest == NULL || *rest != '\0')
        return lh_error_set(error, LH_INVALID_ARGUMENT,
                            "invalid %s '%.64s'; use a time such as 2026-11-28T03:00:00Z, or a day such as 2026-11-28",
                            option, text);
    google__protobuf__timestamp__init(message);
    offset_s = parts.tm_gmtoff; /* timegm(3) sets it to 0 */
    message->seconds = timegm(&parts) - offset_s;
    *field = message;
    return LH_OK;
}

static enum lh_status take_catch_up(const struct lh_args *args, Leasehold__V1__CatchUp *catch_up,
                                    struct lh_error *error)
{
    const char *text = lh_args_value(args, "catch-up");

    for (int i = 1; text != NULL && i < 4; i++)
        if (strcmp(text, lh_catch_up_names[i]) == 0) {
            *catch_up = (Leasehold__V1__CatchUp)i;
            return LH_OK;
        }
    return text == NULL
               ? LH_OK
               : lh_error_set(error, LH_INVALID_ARGUMENT, "invalid catch-up '%.64s'; use none, last or all", text);
}

/* The messages that a schedule points to. */
struct parts {
    struct lh_segments segments;
    Google__Protobuf__Timestamp starts_at, ends_at;
    Google__Protobuf__Duration tick_deadline, jitter, backoff;
};

static enum lh_status take_settings(const struct lh_args *args, Leasehold__V1__Schedule *schedule, struct parts *parts,
                                    struct lh_error *error)
{
    const char *zone = lh_args_value(args, "time-zone");

    if (zone != NULL)
        schedule->time_zone = (char *)(uintptr_t)zone;
    if (take_time(args, "starts-at", &parts->starts_at, &schedule->starts_at, error) != LH_OK ||
        take_time(args, "ends-at", &parts->ends_at, &schedule->ends_at, error) != LH_OK ||
        take_catch_up(args, &schedule->catch_up, error) != LH_OK ||
        lh_schedule_take_count(args, "catch-up-max", &schedule->catch_up_max, error) != LH_OK ||
        lh_schedule_take_count(args, "overlap", &schedule->overlap, error) != LH_OK ||
        lh_schedule_take_count(args, "attempts", &schedule->attempts, error) != LH_OK ||
        take_duration(args, "tick-deadline", LH_US_PER_S, &parts->tick_deadline, &schedule->tick_deadline, error) !=
            LH_OK ||
        take_duration(args, "jitter", 0, &parts->jitter, &schedule->jitter, error) != LH_OK ||
        take_duration(args, "backoff", 0, &parts->backoff, &schedule->backoff, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    return LH_OK;
}

enum lh_exit lh_schedule_set(const struct lh_cli *cli, const char *name, const char *expression, const char *time_zone)
{
    Leasehold__V1__SetScheduleRequest request = LEASEHOLD__V1__SET_SCHEDULE_REQUEST__INIT;
    Leasehold__V1__Schedule schedule = LEASEHOLD__V1__SCHEDULE__INIT;
    const Leasehold__V1__SetScheduleResponse *response;
    struct parts parts = {.segments.count = 0};
    struct lh_arena arena = {0};
    struct lh_error error = {0};
    struct lh_reply reply;
    enum lh_exit status;

    if (lh_check_namespace(name, &error) != LH_OK || take_settings(&cli->args, &schedule, &parts, &error) != LH_OK)
        return lh_error_value(cli, &error);
    lh_segments_split(&parts.segments, name);
    schedule.namespace_ = &parts.segments.message;
    schedule.expression = (char *)(uintptr_t)expression;
    if (time_zone != NULL && time_zone[0] != '\0')
        schedule.time_zone = (char *)(uintptr_t)time_zone;
    request.schedule = &schedule;
    response = lh_schedule_call(cli, &request.base, &arena, &reply, &status);
    if (response != NULL && response->schedule != NULL && !lh_print_json(cli, response->schedule)) {
        char next[LH_JSON_TIME_BYTES] = "never";
        if (response->schedule->next_at != NULL)
            lh_json_timestamp(response->schedule->next_at->seconds, response->schedule->next_at->nanos, next);
        printf("%s: %s in %s, next %s\n", name, response->schedule->expression, response->schedule->time_zone, next);
    }
    lh_reply_finish(&reply);
    lh_arena_finish(&arena);
    lh_segments_finish(&parts.segments);
    return status;
}
