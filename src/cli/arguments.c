#include "cli/arguments.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "json/row_message.h"

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

Leasehold__V1__Namespace *lh_take_namespace(const char *ns, struct lh_arena *arena)
{
    return lh_message_namespace(strcmp(ns, ".") == 0 ? "" : ns, arena);
}

Leasehold__V1__Scope *lh_take_scope(const char *ns, const char *key, struct lh_arena *arena, struct lh_error *error)
{
    if (lh_check_namespace(ns, error) != LH_OK || lh_bounds_key(key, error) != LH_OK)
        return NULL;
    return lh_message_scope(ns, key, arena);
}

/* --- options as fields --- */

/* "2026-11-28T03:00:00Z", "2026-11-28T04:00:00+01:00", "2026-11-28". */
static enum lh_status check_time(const char *option, const char *text, int64_t *time_us, struct lh_error *error)
{
    static const char *const formats[] = {"%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M%z", "%Y-%m-%d"};
    const char *rest = NULL;
    struct tm parts;
    int64_t offset_s;

    for (size_t i = 0; i < 3 && (rest == NULL || *rest != '\0'); i++) {
        memset(&parts, 0, sizeof(parts));
        rest = strptime(text, formats[i], &parts);
    }
    if (rest == NULL || *rest != '\0')
        return lh_error_set(error, LH_INVALID_ARGUMENT,
                            "invalid %s '%.64s'; use a time such as 2026-11-28T03:00:00Z, or a day such as 2026-11-28",
                            option, text);
    offset_s = parts.tm_gmtoff; /* timegm(3) sets it to 0 */
    *time_us = (timegm(&parts) - offset_s) * LH_US_PER_S;
    return LH_OK;
}

static enum lh_status check_enum(const char *option, const char *text, const ProtobufCEnumDescriptor *type,
                                 struct lh_arena *arena, struct lh_error *error)
{
    char words[128] = "";

    for (unsigned i = 0; i < type->n_values; i++) {
        const char *word = lh_message_word(type, type->values[i].value, arena);
        size_t used = strlen(words);
        if (word == NULL) /* unspecified */
            continue;
        if (strcmp(word, text) == 0)
            return LH_OK;
        snprintf(words + used, sizeof(words) - used, "%s%s",
                 used == 0                ? ""
                 : i + 1 < type->n_values ? ", "
                                          : " or ",
                 word);
    }
    return lh_error_set(error, LH_INVALID_ARGUMENT, "invalid %s '%.64s'; use %s", option, text, words);
}

/* Checks the text, which becomes the cell of a row. */
static enum lh_status check_option(const struct lh_taken *taken, const ProtobufCFieldDescriptor *field,
                                   const char **text, struct lh_arena *arena, struct lh_error *error)
{
    enum lh_status status;
    int64_t number = 0;

    switch (field->type) {
    case PROTOBUF_C_TYPE_BOOL:
        *text = "t";
        return LH_OK;
    case PROTOBUF_C_TYPE_STRING:
        return taken->text == LH_TEXT_SEGMENT ? LH_OK : lh_bounds_text(taken->option, taken->text, *text, error);
    case PROTOBUF_C_TYPE_ENUM:
        return check_enum(taken->option, *text, field->descriptor, arena, error);
    case PROTOBUF_C_TYPE_MESSAGE:
        status = field->descriptor == &google__protobuf__timestamp__descriptor
                     ? check_time(taken->option, *text, &number, error)
                     : lh_check_duration(taken->option, *text, taken->least, &number, error);
        *text = lh_arena_format(arena, "%lld", (long long)number);
        return status;
    default:
        return lh_check_number(taken->option, *text, taken->least, taken->most, &number, error);
    }
}

enum lh_status lh_take_options(const struct lh_args *args, const struct lh_taken *taken, ProtobufCMessage *request,
                               struct lh_arena *arena, struct lh_error *error)
{
    for (; taken->option != NULL; taken++) {
        char *name = lh_arena_strdup(arena, taken->field != NULL ? taken->field : taken->option);
        const char *column = name, *text = lh_args_value(args, taken->option);
        struct lh_rows row = {.columns = &column, .column_count = 1, .cells = &text, .row_count = 1};

        for (char *dash = name; (dash = strchr(dash, '-')) != NULL;)
            *dash = '_';
        if (!lh_args_has(args, taken->option))
            continue;
        if (check_option(taken, protobuf_c_message_descriptor_get_field_by_name(request->descriptor, name), &text,
                         arena, error) != LH_OK)
            return LH_INVALID_ARGUMENT;
        lh_row_fill(request, &row, 0, arena);
    }
    return LH_OK;
}
