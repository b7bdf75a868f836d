#include "base/bounds.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

enum lh_status lh_bounds_refuse(struct lh_error *error, const char *field, const char *bound, const char *format, ...)
{
    va_list arguments;

    if (error == NULL)
        return LH_INVALID_ARGUMENT;
    lh_error_set(error, LH_INVALID_ARGUMENT, "%s", "");
    snprintf(error->field, sizeof(error->field), "%s", field);
    snprintf(error->bound, sizeof(error->bound), "%s", bound);
    va_start(arguments, format);
    vsnprintf(error->message, sizeof(error->message), format, arguments);
    va_end(arguments);
    return LH_INVALID_ARGUMENT;
}

/* UTF-8 without control characters, of a size. */
static enum lh_status check_text(const char *field, const char *text, size_t size, size_t min, size_t max,
                                 const char *bound, struct lh_error *error)
{
    if (size < min || size > max)
        return lh_bounds_refuse(error, field, bound, "%s has %zu bytes; it must have %s", field, size, bound);
    if (!lh_utf8_is_valid(text, size))
        return lh_bounds_refuse(error, field, "UTF-8", "%s is not UTF-8", field);
    if (lh_utf8_has_control(text, size))
        return lh_bounds_refuse(error, field, "no control characters", "%s has a control character", field);
    return LH_OK;
}

enum lh_status lh_bounds_key(const char *key, struct lh_error *error)
{
    if (key == NULL)
        return lh_bounds_refuse(error, "key", "1 to 1024 bytes", "key is missing");
    return check_text("key", key, strlen(key), 1, LH_KEY_MAX_BYTES, "1 to 1024 bytes", error);
}

enum lh_status lh_bounds_owner(const char *owner, struct lh_error *error)
{
    return check_text("owner", owner, strlen(owner), 0, LH_OWNER_MAX_BYTES, "at most 255 bytes", error);
}

enum lh_status lh_bounds_namespace(char *text, char *segments[LH_NAMESPACE_MAX_SEGMENTS], size_t *count,
                                   struct lh_error *error)
{
    size_t size = strlen(text);
    char *segment;

    *count = 0;
    if (size > LH_NAMESPACE_MAX_BYTES)
        return lh_bounds_refuse(error, "namespace", "255 bytes in all",
                                "namespace has %zu bytes; at most 255 are allowed", size);
    while ((segment = strsep(&text, ".")) != NULL) {
        if (*count == LH_NAMESPACE_MAX_SEGMENTS)
            return lh_bounds_refuse(error, "namespace", "1 to 16 segments", "namespace has more than 16 segments");
        if (check_text("namespace", segment, strlen(segment), 1, LH_SEGMENT_MAX_BYTES, "segments of 1 to 63 bytes",
                       error) != LH_OK)
            return LH_INVALID_ARGUMENT;
        segments[(*count)++] = segment;
    }
    return LH_OK;
}

enum lh_status lh_bounds_label(const char *label, size_t *name_size, struct lh_error *error)
{
    const char *equals = strchr(label, '=');
    const char *bound = "name=value, names 1 to 63 bytes, values at most 255";

    if (equals == NULL)
        return lh_bounds_refuse(error, "labels", bound, "a label is %s", bound);
    *name_size = (size_t)(equals - label);
    if (check_text("labels", label, *name_size, 1, LH_LABEL_NAME_MAX_BYTES, "names of 1 to 63 bytes", error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    return check_text("labels", equals + 1, strlen(equals + 1), 0, LH_LABEL_VALUE_MAX_BYTES,
                      "values of at most 255 bytes", error);
}

enum lh_status lh_bounds_units(int32_t units, struct lh_error *error)
{
    if (units < 0 || units > LH_UNITS_MAX)
        return lh_bounds_refuse(error, "units", "1 to 1000000, or 0 for the default",
                                "units is %d; it must be 1 to 1000000, or 0 for the default", (int)units);
    return LH_OK;
}

enum lh_status lh_bounds_mode(int mode, int32_t units, int64_t at_least_us, struct lh_error *error)
{
    bool is_shared = mode == 1;

    if (mode < 0 || mode > 1)
        return lh_bounds_refuse(error, "mode", "LH_EXCLUSIVE or LH_SHARED",
                                "mode is %d; it must be LH_EXCLUSIVE or LH_SHARED", mode);
    if (!is_shared && units != 0)
        return lh_bounds_refuse(error, "units", "0 for an exclusive lease",
                                "units is %d; an exclusive lease takes the whole scope, so it must be 0", (int)units);
    if (is_shared && at_least_us != 0)
        return lh_bounds_refuse(error, "at_least", "0 for a shared lease",
                                "at_least_us is %lld; a shared lease has no minimum hold, so it must be 0",
                                (long long)at_least_us);
    if (lh_bounds_units(units, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    if (at_least_us < -1 || at_least_us > LH_AT_LEAST_MAX_US) /* LH_NO_MINIMUM is -1 */
        return lh_bounds_refuse(error, "at_least", "LH_NO_MINIMUM, or 0 to 1 day",
                                "at_least_us is %lld; it must be LH_NO_MINIMUM, or 0 to 1 day", (long long)at_least_us);
    return LH_OK;
}

enum lh_status lh_bounds_result(const char *field, const char *text, struct lh_error *error)
{
    size_t size = strlen(text);

    if (size > LH_RESULT_MAX_BYTES)
        return lh_bounds_refuse(error, field, "at most 8 KiB", "%s has %zu bytes; at most 8192 are allowed", field,
                                size);
    if (!lh_utf8_is_valid(text, size))
        return lh_bounds_refuse(error, field, "UTF-8", "%s is not UTF-8", field);
    return LH_OK;
}
