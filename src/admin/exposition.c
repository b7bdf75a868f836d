#include "admin/exposition.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define NUMBER_BYTES 32

static void put(struct lh_exposition *out, const char *text)
{
    lh_buffer_append(&out->text, text, strlen(text));
}

/* In a help text backslash and newline, in a label's value the quote too. */
static void put_escaped(struct lh_exposition *out, const char *text, bool is_label)
{
    for (; *text != '\0'; text++) {
        if (*text == '\\')
            put(out, "\\\\");
        else if (*text == '\n')
            put(out, "\\n");
        else if (*text == '"' && is_label)
            put(out, "\\\"");
        else
            lh_buffer_append(&out->text, text, 1);
    }
}

static void put_label(struct lh_exposition *out, bool is_first, const char *name, const char *value)
{
    put(out, is_first ? "{" : ",");
    put(out, name);
    put(out, "=\"");
    put_escaped(out, value, true);
    put(out, "\"");
}

/* One line; `extra` is the value of a last label `le`, or NULL. */
static void put_sample(struct lh_exposition *out, const char *suffix, va_list labels, const char *extra,
                       const char *number)
{
    bool is_first = true;
    const char *name;

    put(out, out->name);
    put(out, suffix);
    if (out->database != NULL) {
        put_label(out, is_first, "database", out->database);
        is_first = false;
    }
    while ((name = va_arg(labels, const char *)) != NULL) {
        put_label(out, is_first, name, va_arg(labels, const char *));
        is_first = false;
    }
    if (extra != NULL) {
        put_label(out, is_first, "le", extra);
        is_first = false;
    }
    put(out, is_first ? " " : "} ");
    put(out, number);
    put(out, "\n");
}

static void put_sample_again(struct lh_exposition *out, const char *suffix, va_list labels, const char *extra,
                             const char *number)
{
    va_list copy;
    va_copy(copy, labels);
    put_sample(out, suffix, copy, extra, number);
    va_end(copy);
}

/* Exactly: a double would round the microseconds of a time since 1970. Without zeros at the end, so that `le` is short.
 */
static const char *format_seconds(char text[NUMBER_BYTES], bool is_negative, uint64_t us)
{
    int size = snprintf(text, NUMBER_BYTES, "%s%" PRIu64 ".%06" PRIu64, is_negative ? "-" : "", us / LH_US_PER_S,
                        us % LH_US_PER_S);
    while (text[size - 1] == '0')
        text[--size] = '\0';
    if (text[size - 1] == '.')
        text[--size] = '\0';
    return text;
}

static const char *format_number(char text[NUMBER_BYTES], uint64_t value, bool is_time)
{
    if (is_time)
        return format_seconds(text, false, value);
    snprintf(text, NUMBER_BYTES, "%" PRIu64, value);
    return text;
}

void lh_expose_family(struct lh_exposition *out, const char *name, enum lh_expose_type type, const char *help)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};

    out->name = name;
    put(out, "# HELP ");
    put(out, name);
    put(out, " ");
    put_escaped(out, help, false);
    put(out, "\n# TYPE ");
    put(out, name);
    put(out, " ");
    put(out, types[type]);
    put(out, "\n");
}

void lh_expose_count(struct lh_exposition *out, uint64_t value, ...)
{
    char number[NUMBER_BYTES];
    va_list labels;

    va_start(labels, value);
    put_sample(out, "", labels, NULL, format_number(number, value, false));
    va_end(labels);
}

void lh_expose_seconds(struct lh_exposition *out, int64_t value_us, ...)
{
    char number[NUMBER_BYTES];
    uint64_t magnitude = value_us < 0 ? 0 - (uint64_t)value_us : (uint64_t)value_us;
    va_list labels;

    va_start(labels, value_us);
    put_sample(out, "", labels, NULL, format_seconds(number, value_us < 0, magnitude));
    va_end(labels);
}

void lh_expose_histogram(struct lh_exposition *out, const struct lh_histogram *histogram,
                         const struct lh_bounds *bounds, bool is_time, ...)
{
    char bound[NUMBER_BYTES], number[NUMBER_BYTES];
    uint64_t count = 0;
    va_list labels;

    va_start(labels, is_time);
    for (size_t i = 0; i < bounds->count; i++) {
        count += histogram->counts[i];
        put_sample_again(out, "_bucket", labels, format_number(bound, (uint64_t)bounds->at[i], is_time),
                         format_number(number, count, false));
    }
    count += histogram->counts[bounds->count];
    format_number(number, count, false);
    put_sample_again(out, "_bucket", labels, "+Inf", number);
    put_sample_again(out, "_count", labels, NULL, number);
    put_sample_again(out, "_sum", labels, NULL, format_number(number, histogram->sum, is_time));
    va_end(labels);
}

void lh_expose_counter(struct lh_exposition *out, const char *name, uint64_t value, const char *help)
{
    lh_expose_family(out, name, LH_EXPOSE_COUNTER, help);
    lh_expose_count(out, value, NULL);
}

void lh_expose_gauge(struct lh_exposition *out, const char *name, uint64_t value, const char *help)
{
    lh_expose_family(out, name, LH_EXPOSE_GAUGE, help);
    lh_expose_count(out, value, NULL);
}

#define FAMILY "# HELP "

/* Where the family behind this one begins, or the end. */
static const char *family_end(const char *text)
{
    const char *next = strstr(text + 1, "\n" FAMILY);
    return next == NULL ? text + strlen(text) : next + 1;
}

/* Behind the lines HELP and TYPE. */
static const char *family_samples(const char *text)
{
    return strchr(strchr(text, '\n') + 1, '\n') + 1;
}

void lh_expose_merged(struct lh_exposition *out, struct lh_exposition *parts, size_t count)
{
    const char **at = lh_alloc_zero(count, sizeof(*at));

    for (size_t i = 0; i < count; i++) {
        lh_buffer_append(&parts[i].text, "", 1);
        at[i] = (const char *)parts[i].text.data;
    }
    while (count > 0 && *at[0] != '\0') {
        for (size_t i = 0; i < count; i++) {
            const char *end = family_end(at[i]), *begin = i == 0 ? at[i] : family_samples(at[i]);
            lh_buffer_append(&out->text, begin, (size_t)(end - begin));
            at[i] = end;
        }
    }
    for (size_t i = 0; i < count; i++)
        lh_buffer_finish(&parts[i].text);
    free(at);
}
