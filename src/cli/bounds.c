#include "cli/bounds.h"
#include "base/text.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char segment_bound[] = "1 to 16 segments between dots, of 1 to 63 bytes each, 255 bytes in all";

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

static enum lh_status check_text(const char *field, const char *bound, const char *text, size_t min, size_t max,
                                 bool may_have_control, struct lh_error *error)
{
    size_t size = strlen(text);

    if (size < min)
        return refuse(error, field, bound, "is empty");
    if (size > max)
        return refuse(error, field, bound, "is too long (%zu bytes)", size);
    if (!lh_utf8_is_valid(text, size))
        return refuse(error, field, bound, "is not valid UTF-8");
    if (!may_have_control && lh_utf8_has_control(text, size))
        return refuse(error, field, bound, "has a control character");
    return LH_OK;
}

enum lh_status lh_check_namespace(const char *text, struct lh_error *error)
{
    enum lh_status status = check_text("namespace", segment_bound, text, 1, LH_NAMESPACE_MAX_BYTES, false, error);
    size_t count = 0;

    if (status != LH_OK)
        return status;
    for (const char *at = text;; at++) {
        size_t size = strcspn(at, ".");
        count++;
        if (size == 0)
            return refuse(error, "namespace", segment_bound, "'%s' has an empty segment", text);
        if (size > LH_SEGMENT_MAX_BYTES)
            return refuse(error, "namespace", segment_bound, "has a segment that is too long (%zu bytes)", size);
        at += size;
        if (*at == '\0')
            break;
    }
    if (count > LH_NAMESPACE_MAX_SEGMENTS)
        return refuse(error, "namespace", segment_bound, "has too many segments (%zu)", count);
    return LH_OK;
}

enum lh_status lh_check_namespace_or_root(const char *text, struct lh_error *error)
{
    if (strcmp(text, "") == 0 || strcmp(text, ".") == 0)
        return LH_OK;
    return lh_check_namespace(text, error);
}

enum lh_status lh_check_new_namespace(const char *text, struct lh_error *error)
{
    char dotted[LH_NAMESPACE_MAX_BYTES + 1];
    enum lh_status status = lh_check_namespace(text, error);
    struct lh_error ignored;
    bool is_near;

    if (status != LH_OK || strchr(text, '/') == NULL)
        return status;
    strcpy(dotted, text);
    for (char *c = dotted; *c != '\0'; c++)
        *c = *c == '/' ? '.' : *c;
    is_near = lh_check_namespace(dotted, &ignored) == LH_OK;
    return lh_error_set(
        error, LH_INVALID_ARGUMENT, "namespace '%.100s' has a '/'; segments are separated by dots%s%.100s%s", text,
        is_near ? ": did you mean " : ", as in payments.invoices", is_near ? dotted : "", is_near ? "?" : "");
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
    status = lh_check_lease_key(word, &uuid, error);
    if (status == LH_OK)
        lh_uuid_format(&uuid, text);
    return status;
}

enum lh_status lh_check_key(const char *text, struct lh_error *error)
{
    return check_text("key", "1 to 1024 bytes of UTF-8 without control characters", text, 1, LH_KEY_MAX_BYTES, false,
                      error);
}

enum lh_status lh_check_owner(const char *text, struct lh_error *error)
{
    return check_text("owner", "at most 255 bytes of UTF-8", text, 0, LH_OWNER_MAX_BYTES, true, error);
}

enum lh_status lh_check_lease_key(const char *text, struct lh_uuid *uuid, struct lh_error *error)
{
    if (!lh_uuid_parse(text, uuid) || lh_uuid_is_zero(uuid))
        return refuse(error, "lease_key", "one such as 6f2c1f0e-5d0b-4b57-9a35-0c8f6c2e7a11", "'%.64s' is not a UUID",
                      text);
    return LH_OK;
}

enum lh_status lh_check_duration(const char *option, const char *text, int64_t min_us, int64_t *duration_us,
                                 struct lh_error *error)
{
    char bound[96] = "a number and a unit of us, ms, s, m, h or d, such as 1.5s or 2h30m";

    if (!lh_duration_parse(text, duration_us)) {
        if (*duration_us == INT64_MAX)
            return refuse(error, option, "at most 36500d", "%.64s is too long", text);
        return refuse(error, option, bound, "'%.64s' is not a duration", text);
    }
    if (*duration_us < min_us) {
        char least[LH_DURATION_TEXT_BYTES];
        lh_duration_format(min_us, least);
        snprintf(bound, sizeof(bound), "%s or more", least);
        return refuse(error, option, bound, "%.64s is too short", text);
    }
    return LH_OK;
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

enum lh_status lh_check_label(const char *text, size_t *name_size, struct lh_error *error)
{
    static const char bound[] = "a name of 1 to 63 bytes, '=', and a value of at most 255 bytes";
    const char *equals = strchr(text, '=');
    size_t size = strlen(text);

    if (equals == NULL)
        return refuse(error, "label", bound, "'%.64s' has no '='", text);
    *name_size = (size_t)(equals - text);
    if (*name_size == 0)
        return refuse(error, "label", bound, "'%.64s' has no name", text);
    if (*name_size > LH_LABEL_NAME_MAX_BYTES)
        return refuse(error, "label", bound, "has a name that is too long (%zu bytes)", *name_size);
    if (size - *name_size - 1 > LH_LABEL_VALUE_MAX_BYTES)
        return refuse(error, "label", bound, "'%.*s' has a value that is too long (%zu bytes)", (int)*name_size, text,
                      size - *name_size - 1);
    return check_text("label", bound, text, 1, SIZE_MAX, true, error);
}

enum lh_status lh_check_result(const char *text, struct lh_error *error)
{
    static const char bound[] = "JSON of at most 8192 bytes, such as '{\"rows\": 12}' or '\"a text in quotes\"'";
    json_error_t fault;
    json_t *json;
    enum lh_status status = check_text("result", bound, text, 1, LH_RESULT_MAX_BYTES, true, error);

    if (status != LH_OK)
        return status;
    json = json_loads(text, JSON_DECODE_ANY, &fault);
    /* A number that jansson cannot hold PostgreSQL may: that is the server's to say. */
    if (json == NULL && json_error_code(&fault) != json_error_numeric_overflow)
        return refuse(error, "result", bound, "is not JSON (%s)", fault.text);
    json_decref(json);
    return LH_OK;
}

enum lh_status lh_check_words(const char *option, const char *text, struct lh_error *error)
{
    return check_text(option, "1 to 8192 bytes of UTF-8", text, 1, LH_RESULT_MAX_BYTES, true, error);
}
