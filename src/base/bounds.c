#include "base/bounds.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "base/uuid.h"

static const struct {
    size_t least;
    size_t most;
    bool may_have_control;
} texts[] = {
    [LH_TEXT_SEGMENT] = {1, LH_SEGMENT_MAX_BYTES, false},
    [LH_TEXT_KEY] = {1, LH_KEY_MAX_BYTES, false},
    [LH_TEXT_OWNER] = {0, LH_OWNER_MAX_BYTES, true},
    [LH_TEXT_LABEL_NAME] = {1, LH_LABEL_NAME_MAX_BYTES, true},
    [LH_TEXT_LABEL_VALUE] = {0, LH_LABEL_VALUE_MAX_BYTES, true},
    [LH_TEXT_RESULT] = {0, LH_RESULT_MAX_BYTES, true},
    [LH_TEXT_REASON] = {1, LH_RESULT_MAX_BYTES, true},
    [LH_TEXT_PRINCIPAL] = {1, LH_PRINCIPAL_MAX_BYTES, false},
    [LH_TEXT_HAND_OVER] = {1, LH_HAND_OVER_WORDS_MAX_BYTES, true},
};

#define NUMBER(name, option, most, ...) {#name, option, most},
const struct lh_acquire_number lh_acquire_numbers[] = {LH_ACQUIRE_NUMBERS(NUMBER, )};

/* --- rules --- */

static bool say(char words[LH_BOUND_WORDS_BYTES], const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool say(char words[LH_BOUND_WORDS_BYTES], const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(words, LH_BOUND_WORDS_BYTES, format, arguments);
    va_end(arguments);
    return false;
}

bool lh_bound_text(enum lh_bounded_text kind, const char *text, size_t size, char words[LH_BOUND_WORDS_BYTES])
{
    if (size < texts[kind].least || (size > texts[kind].most && texts[kind].least > 0))
        return say(words, "must be %zu to %zu bytes, has %zu", texts[kind].least, texts[kind].most, size);
    if (size > texts[kind].most)
        return say(words, "must be at most %zu bytes, has %zu", texts[kind].most, size);
    if (kind == LH_TEXT_SEGMENT && memchr(text, '.', size) != NULL)
        return say(words, "must not contain a dot: write one segment for each level");
    if (!texts[kind].may_have_control && lh_utf8_has_control(text, size))
        return say(words, "must not contain control characters");
    return true;
}

bool lh_bound_namespace(size_t segments, size_t bytes, char words[LH_BOUND_WORDS_BYTES])
{
    if (segments == 0 || segments > LH_NAMESPACE_MAX_SEGMENTS)
        return say(words, "must have 1 to %d segments, has %zu", LH_NAMESPACE_MAX_SEGMENTS, segments);
    if (bytes > LH_NAMESPACE_MAX_BYTES)
        return say(words, "must be at most %d bytes with the dots between segments, has %zu", LH_NAMESPACE_MAX_BYTES,
                   bytes);
    return true;
}

bool lh_bound_lease_key(const char *text, struct lh_uuid *lease_key, char words[LH_BOUND_WORDS_BYTES])
{
    if (lh_uuid_parse(text, lease_key) && !lh_uuid_is_zero(lease_key))
        return true;
    return say(words, "must be a UUID of 8-4-4-4-12 hexadecimal digits, and not all zero, is \"%.*s\"",
               (int)lh_utf8_cut(text, strlen(text), LH_UUID_TEXT_BYTES - 1), text);
}

static const char *duration_words(int64_t duration_us, char text[LH_DURATION_TEXT_BYTES])
{
    const int64_t day_us = INT64_C(86400) * 1000000;

    if (duration_us == LH_DURATION_MAX_US)
        return "100 years";
    if (duration_us % day_us == 0)
        snprintf(text, LH_DURATION_TEXT_BYTES, "%d day%s", (int)(duration_us / day_us),
                 duration_us > day_us ? "s" : "");
    else
        lh_duration_format(duration_us, text);
    return text;
}

/* To the microsecond: a rounded value may look like one that is within the bounds. */
static const char *exact_words(int64_t duration_us, char text[LH_DURATION_TEXT_BYTES])
{
    if (duration_us == INT64_MAX)
        return "292471 years or more";
    if (duration_us % LH_US_PER_S == 0)
        snprintf(text, LH_DURATION_TEXT_BYTES, "%lld s", (long long)(duration_us / LH_US_PER_S));
    else if (duration_us % LH_US_PER_MS == 0)
        snprintf(text, LH_DURATION_TEXT_BYTES, "%lld ms", (long long)(duration_us / LH_US_PER_MS));
    else
        snprintf(text, LH_DURATION_TEXT_BYTES, "%lld us", (long long)duration_us);
    return text;
}

bool lh_bound_duration(int64_t duration_us, int64_t least_us, int64_t most_us, char words[LH_BOUND_WORDS_BYTES])
{
    char limit[LH_DURATION_TEXT_BYTES], value[LH_DURATION_TEXT_BYTES];

    if (duration_us < 0)
        return say(words, "must not be negative, is %s", exact_words(duration_us, value));
    if (duration_us > most_us)
        return say(words, "must be at most %s, is %s", duration_words(most_us, limit), exact_words(duration_us, value));
    if (duration_us < least_us)
        return say(words, "must be at least %s, is %s", duration_words(least_us, limit),
                   exact_words(duration_us, value));
    return true;
}

bool lh_bound_count(int64_t number, int64_t if_zero, int64_t most, char words[LH_BOUND_WORDS_BYTES])
{
    if (number >= 0 && number <= most)
        return true;
    return say(words, "must be 0 (which is %lld) to %lld, is %lld", (long long)if_zero, (long long)most,
               (long long)number);
}

bool lh_bound_number(int64_t number, int64_t most, char words[LH_BOUND_WORDS_BYTES])
{
    if (number >= 0 && number <= most)
        return true;
    return say(words, "must be 0 to %lld, is %lld", (long long)most, (long long)number);
}

const char *lh_bound_mode(bool is_shared, const char *shared, int32_t units, bool has_at_least,
                          char words[LH_BOUND_WORDS_BYTES])
{
    if (is_shared && has_at_least) {
        say(words, "must not be given for a shared lease (mode %s)", shared);
        return "at_least";
    }
    if (!is_shared && units != 0) {
        say(words, "must be 0 for an exclusive lease, is %d: units are of shared ones (mode %s)", (int)units, shared);
        return "units";
    }
    return lh_bound_count(units, 1, LH_UNITS_MAX, words) ? NULL : "units";
}

/* --- errors --- */

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

/* `name` is that of a part of the field. */
static enum lh_status check_part(const char *field, const char *name, enum lh_bounded_text kind, const char *text,
                                 size_t size, struct lh_error *error)
{
    char words[LH_BOUND_WORDS_BYTES];

    if (!lh_utf8_is_valid(text, size))
        return lh_bounds_refuse(error, field, "UTF-8", "%s must be UTF-8", name);
    if (lh_bound_text(kind, text, size, words))
        return LH_OK;
    return lh_bounds_refuse(error, field, words, "%s %s", name, words);
}

enum lh_status lh_bounds_text(const char *field, enum lh_bounded_text kind, const char *text, struct lh_error *error)
{
    return check_part(field, field, kind, text, strlen(text), error);
}

enum lh_status lh_bounds_key(const char *key, struct lh_error *error)
{
    if (key == NULL)
        return lh_bounds_refuse(error, "key", "must be given", "key must be given");
    return lh_bounds_text("key", LH_TEXT_KEY, key, error);
}

enum lh_status lh_bounds_lease_key(const char *text, struct lh_uuid *lease_key, struct lh_error *error)
{
    char words[LH_BOUND_WORDS_BYTES];

    if (lh_bound_lease_key(text, lease_key, words))
        return LH_OK;
    return lh_bounds_refuse(error, "lease_key", words, "lease_key %s", words);
}

enum lh_status lh_bounds_duration(const char *field, int64_t duration_us, int64_t least_us, int64_t most_us,
                                  struct lh_error *error)
{
    char words[LH_BOUND_WORDS_BYTES];

    if (lh_bound_duration(duration_us, least_us, most_us, words))
        return LH_OK;
    return lh_bounds_refuse(error, field, words, "%s %s", field, words);
}

enum lh_status lh_bounds_time(const char *field, int64_t time_us, struct lh_error *error)
{
    return lh_bounds_duration(field, time_us, 0, INT64_MAX, error);
}

enum lh_status lh_bounds_namespace(char *text, char *segments[LH_NAMESPACE_MAX_SEGMENTS], size_t *count,
                                   struct lh_error *error)
{
    size_t size = strlen(text), all = size == 0 ? 0 : 1;
    char words[LH_BOUND_WORDS_BYTES], name[sizeof("segment 16 of namespace")], *segment;

    for (const char *dot = text; (dot = strchr(dot, '.')) != NULL; dot++)
        all++;
    *count = 0;
    if (!lh_bound_namespace(all, size, words))
        return lh_bounds_refuse(error, "namespace", words, "namespace %s", words);
    while ((segment = strsep(&text, ".")) != NULL) {
        segments[(*count)++] = segment;
        snprintf(name, sizeof(name), "segment %zu of namespace", *count);
        if (check_part("namespace", name, LH_TEXT_SEGMENT, segment, strlen(segment), error) != LH_OK)
            return LH_INVALID_ARGUMENT;
    }
    return LH_OK;
}

enum lh_status lh_bounds_label(const char *label, size_t *name_size, struct lh_error *error)
{
    const char *equals = strchr(label, '=');

    if (equals == NULL)
        return lh_bounds_refuse(error, "labels", "must be name=value", "labels must be name=value, '%.64s' has no '='",
                                label);
    *name_size = (size_t)(equals - label);
    if (check_part("labels", "the name of a label", LH_TEXT_LABEL_NAME, label, *name_size, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    return check_part("labels", "the value of a label", LH_TEXT_LABEL_VALUE, equals + 1, strlen(equals + 1), error);
}

enum lh_status lh_bounds_units(int32_t units, struct lh_error *error)
{
    char words[LH_BOUND_WORDS_BYTES];

    if (lh_bound_count(units, 1, LH_UNITS_MAX, words))
        return LH_OK;
    return lh_bounds_refuse(error, "units", words, "units %s", words);
}

enum lh_status lh_bounds_number(const char *field, int64_t number, int64_t most, struct lh_error *error)
{
    char words[LH_BOUND_WORDS_BYTES];

    if (lh_bound_number(number, most, words))
        return LH_OK;
    return lh_bounds_refuse(error, field, words, "%s %s", field, words);
}

enum lh_status lh_bounds_acquire_numbers(const int32_t numbers[LH_ACQUIRE_NUMBER_COUNT], struct lh_error *error)
{
    enum lh_status status = LH_OK;

    for (size_t i = 0; status == LH_OK && i < LH_ACQUIRE_NUMBER_COUNT; i++)
        status = lh_bounds_number(lh_acquire_numbers[i].name, numbers[i], lh_acquire_numbers[i].most, error);
    return status;
}

enum lh_status lh_bounds_mode(int mode, int32_t units, int64_t at_least_us, struct lh_error *error)
{
    char words[LH_BOUND_WORDS_BYTES];
    const char *field;

    if (mode < 0 || mode > 1)
        return lh_bounds_refuse(error, "mode", "LH_EXCLUSIVE or LH_SHARED",
                                "mode must be LH_EXCLUSIVE or LH_SHARED, is %d", mode);
    field = lh_bound_mode(mode == 1, "LH_SHARED", units, at_least_us != 0, words);
    if (field != NULL)
        return lh_bounds_refuse(error, field, words, "%s %s", field, words);
    if (at_least_us == -1) /* LH_NO_MINIMUM */
        return LH_OK;
    return lh_bounds_duration("at_least", at_least_us, 0, LH_AT_LEAST_MAX_US, error);
}
