#include "cli/arguments.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"

/* --- checks --- */

static enum lh_status refuse(struct lh_error *error, const char *field, const char *bound, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static enum lh_status refuse(struct lh_error *error, const char *field, const char *bound, const char *format, ...)
{
    char what[256];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    lh_error_set(error, LH_INVALID_ARGUMENT, "%s %s; it takes %s", field, what, bound);
    snprintf(error->field, sizeof(error->field), "%s", field);
    snprintf(error->bound, sizeof(error->bound), "%s", bound);
    return LH_INVALID_ARGUMENT;
}

enum lh_status lh_check_namespace(const char *text, struct lh_error *error)
{
    char *segments[LH_NAMESPACE_MAX_SEGMENTS], *copy = lh_strdup(text);
    size_t count;
    enum lh_status status = lh_bounds_namespace(copy, segments, &count, error);

    free(copy);
    return status;
}

enum lh_status lh_check_namespace_or_root(const char *text, struct lh_error *error)
{
    if (strcmp(text, "") == 0 || strcmp(text, ".") == 0)
        return LH_OK;
    return lh_check_namespace(text, error);
}

enum lh_status lh_take_lease_key(const char *word, char text[LH_UUID_TEXT_BYTES], struct lh_error *error)
{
    char line[LH_UUID_TEXT_BYTES + 1] = "";
    struct lh_uuid uuid;
    enum lh_status status;

    if (word == NULL)
        word = getenv("LEASEHOLD_LEASE_KEY");
    if (word == NULL || word[0] == '\0')
        return lh_error_set(error, LH_INVALID_ARGUMENT,
                            "missing lease key: give LEASE_KEY, - to read it from stdin, or set LEASEHOLD_LEASE_KEY");
    if (strcmp(word, "-") == 0) {
        if (fgets(line, sizeof(line), stdin) == NULL)
            return lh_error_set(error, LH_INVALID_ARGUMENT, "no lease key on stdin");
        line[strcspn(line, "\r\n")] = '\0';
        word = line;
    }
    status = lh_bounds_lease_key(word, &uuid, error);
    if (status == LH_OK)
        lh_uuid_format(&uuid, text);
    return status;
}

enum lh_status lh_check_duration(const char *option, const char *text, int64_t min_us, int64_t *duration_us,
                                 struct lh_error *error)
{
    if (!lh_duration_parse(text, duration_us) && *duration_us != INT64_MAX)
        return refuse(error, option, "a number and a unit of us, ms, s, m, h or d, such as 1.5s or 2h30m",
                      "'%.64s' is not a duration", text);
    if (*duration_us == INT64_MAX) /* longer than any; the words are those of lh_bounds_duration */
        return lh_bounds_refuse(error, option, "must be at most 100 years", "%s must be at most 100 years, is %.64s",
                                option, text);
    return lh_bounds_duration(option, *duration_us, min_us, LH_DURATION_MAX_US, error);
}

enum lh_status lh_check_number(const char *option, const char *text, int64_t min, int64_t max, int64_t *number,
                               struct lh_error *error)
{
    char bound[64];
    char *end;

    errno = 0;
    *number = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || *number < min || *number > max) {
        if (max == INT64_MAX)
            snprintf(bound, sizeof(bound), "a whole number from %lld on", (long long)min);
        else
            snprintf(bound, sizeof(bound), "a whole number from %lld to %lld", (long long)min, (long long)max);
        return refuse(error, option, bound, "'%.64s' is out of bounds", text);
    }
    return LH_OK;
}

enum lh_status lh_check_result(const char *text, struct lh_error *error)
{
    static const char bound[] = "JSON of at most 8192 bytes, such as '{\"rows\": 12}' or '\"a text in quotes\"'";
    json_error_t fault;
    json_t *json;
    enum lh_status status = lh_bounds_text("result", LH_TEXT_RESULT, text, error);

    if (status != LH_OK)
        return status;
    json = json_loads(text, JSON_DECODE_ANY, &fault);
    /* A number that jansson cannot hold PostgreSQL may: that is the server's to say. */
    if (json == NULL && json_error_code(&fault) != json_error_numeric_overflow)
        return refuse(error, "result", bound, "is not JSON (%s)", fault.text);
    json_decref(json);
    return LH_OK;
}

/* --- fields of messages --- */

/* What a server may say: sums and differences of three such times do not overflow. */
#define SECONDS_MAX (INT64_MAX / LH_US_PER_S / 4)

static int64_t to_us(int64_t seconds, int32_t nanos)
{
    if (seconds > SECONDS_MAX)
        seconds = SECONDS_MAX;
    if (seconds < -SECONDS_MAX)
        seconds = -SECONDS_MAX;
    return seconds * LH_US_PER_S + nanos / 1000;
}

int64_t lh_duration_us(const Google__Protobuf__Duration *duration)
{
    return to_us(duration->seconds, duration->nanos);
}

int64_t lh_timestamp_us(const Google__Protobuf__Timestamp *timestamp)
{
    return to_us(timestamp->seconds, timestamp->nanos);
}

Google__Protobuf__Duration lh_duration_message(int64_t duration_us)
{
    Google__Protobuf__Duration message = GOOGLE__PROTOBUF__DURATION__INIT;
    message.seconds = duration_us / LH_US_PER_S;
    message.nanos = (int32_t)(duration_us % LH_US_PER_S) * 1000;
    return message;
}

void lh_segments_split(struct lh_segments *segments, const char *ns)
{
    char *rest = NULL;

    *segments = (struct lh_segments){.text = lh_strdup(ns)};
    for (char *segment = strtok_r(segments->text, ".", &rest);
         segment != NULL && segments->count < LH_NAMESPACE_MAX_SEGMENTS; segment = strtok_r(NULL, ".", &rest))
        segments->list[segments->count++] = segment;
    leasehold__v1__namespace__init(&segments->message);
    segments->message.segments = segments->list;
    segments->message.n_segments = segments->count;
}

void lh_segments_finish(struct lh_segments *segments)
{
    free(segments->text);
    *segments = (struct lh_segments){0};
}

bool lh_scope_message_init(struct lh_scope_message *scope, const char *ns, const char *key, struct lh_error *error)
{
    if (lh_check_namespace(ns, error) != LH_OK || lh_bounds_key(key, error) != LH_OK)
        return false;
    lh_segments_split(&scope->segments, ns);
    leasehold__v1__scope__init(&scope->message);
    scope->message.namespace_ = scope->segments.list;
    scope->message.n_namespace_ = scope->segments.count;
    scope->message.key = (char *)(uintptr_t)key; /* packing only reads it */
    return true;
}

void lh_scope_message_finish(struct lh_scope_message *scope)
{
    lh_segments_finish(&scope->segments);
}
