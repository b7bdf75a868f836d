/* One setting's value: from text and back. */
#include "config/config_internal.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/address.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"

/* 20000000 is "20s": the largest unit that divides it. */
static char *format_duration(int64_t duration_us)
{
    static const struct {
        const char *name;
        int64_t us;
    } units[] = {{"d", 86400 * LH_US_PER_S}, {"h", 3600 * LH_US_PER_S}, {"m", 60 * LH_US_PER_S},
                 {"s", LH_US_PER_S},         {"ms", LH_US_PER_MS},      {"us", 1}};
    size_t i = 0;

    if (duration_us == 0)
        return lh_strdup("0");
    while (duration_us % units[i].us != 0)
        i++;
    return lh_format("%lld%s", (long long)(duration_us / units[i].us), units[i].name);
}

/* Units are of 1024, as PostgreSQL's are: 16MB is 16 MiB. */
static const struct {
    const char *name;
    int64_t bytes;
} size_units[] = {{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}};

#define SIZE_UNITS (sizeof(size_units) / sizeof(size_units[0]))

static char *format_size(int64_t size)
{
    size_t i = 0;

    while (size % size_units[i].bytes != 0)
        i++;
    return lh_format("%lld%s", (long long)(size / size_units[i].bytes), size_units[i].name);
}

/* "16MiB", "16 MB", "16m", or bytes. */
static bool parse_size(const char *text, int64_t *size)
{
    char *unit;

    errno = 0;
    *size = strtoll(text, &unit, 10);
    if (unit == text || isspace((unsigned char)*text) || errno != 0)
        return false;
    unit += strspn(unit, " ");
    if (*unit == '\0')
        return true;
    for (size_t i = 0; i < SIZE_UNITS; i++) {
        const char *name = size_units[i].name;
        bool is_short = strncasecmp(unit, name, 1) == 0 && (unit[1] == '\0' || strcasecmp(unit + 1, "B") == 0);
        if (is_short || strcasecmp(unit, name) == 0)
            return !__builtin_mul_overflow(*size, size_units[i].bytes, size);
    }
    return false;
}

#define RATIO_DIGITS 6
#define RATIO_ONE INT64_C(1000000)

static char *format_ratio(int64_t ratio)
{
    char *text = lh_format("%lld.%06lld", (long long)(ratio / RATIO_ONE), (long long)(ratio % RATIO_ONE));
    size_t size = strlen(text);

    while (text[size - 1] == '0')
        size--;
    text[text[size - 1] == '.' ? size - 1 : size] = '\0';
    return text;
}

/* "0.01": digits, and up to six behind a point. */
static bool parse_ratio(const char *text, int64_t *ratio)
{
    size_t whole = strspn(text, "0123456789"), digits;
    const char *rest = text + whole;

    if (whole == 0 || whole > 9)
        return false;
    *ratio = strtoll(text, NULL, 10);
    digits = *rest == '.' ? strspn(++rest, "0123456789") : 0;
    if (rest[digits] != '\0' || digits > RATIO_DIGITS || (rest != text + whole && digits == 0))
        return false;
    for (size_t i = 0; i < RATIO_DIGITS; i++)
        *ratio = *ratio * 10 + (i < digits ? rest[i] - '0' : 0);
    return true;
}

static char *format_number(const struct lh_setting *setting, int64_t value)
{
    if (setting->type == LH_TYPE_DURATION)
        return format_duration(value);
    if (setting->type == LH_TYPE_MODE)
        return lh_format("%04llo", (unsigned long long)value);
    if (setting->type == LH_TYPE_SIZE)
        return format_size(value);
    if (setting->type == LH_TYPE_RATIO)
        return format_ratio(value);
    return lh_format("%lld", (long long)value);
}

static bool refuse_bound(const struct lh_setting *setting, int64_t value, char *why, size_t why_bytes)
{
    char *min = format_number(setting, setting->min);
    char *max = format_number(setting, setting->max);

    snprintf(why, why_bytes, "%s: allowed is %s%s to %s", value < setting->min ? "too small" : "too large",
             (setting->flags & LH_SETTING_OR_ZERO) != 0 ? "0, or " : "", min, max);
    free(min);
    free(max);
    return false;
}

/* Writes `why` and returns false, so that a check can end with it. */
__attribute__((format(printf, 3, 4))) static bool refuse(char *why, size_t why_bytes, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(why, why_bytes, format, arguments);
    va_end(arguments);
    return false;
}

static bool set_number(void *to, const struct lh_setting *setting, const char *text, char *why, size_t why_bytes)
{
    int64_t value;
    char *end;

    if (setting->type == LH_TYPE_DURATION) {
        if (!lh_duration_parse(text, &value))
            return refuse(why, why_bytes, "expected a duration such as 500ms, 20s, 5m or 1h30m");
    } else if (setting->type == LH_TYPE_SIZE) {
        if (!parse_size(text, &value))
            return refuse(why, why_bytes, "expected a size such as 16MiB, 512KiB or 1GiB");
    } else if (setting->type == LH_TYPE_RATIO) {
        if (!parse_ratio(text, &value))
            return refuse(why, why_bytes, "expected a number such as 0, 0.01 or 1");
    } else {
        bool is_mode = setting->type == LH_TYPE_MODE;
        errno = 0;
        value = strtoll(text, &end, is_mode ? 8 : 10);
        if (end == text || *end != '\0' || isspace((unsigned char)*text) || (errno != 0 && errno != ERANGE))
            return refuse(why, why_bytes, "expected %s", is_mode ? "octal digits such as 0660" : "a whole number");
    }
    if ((value < setting->min || value > setting->max) && !(value == 0 && (setting->flags & LH_SETTING_OR_ZERO) != 0))
        return refuse_bound(setting, value, why, why_bytes);
    memcpy(to, &value, sizeof(value));
    return true;
}

static bool set_bool(bool *to, const char *text, char *why, size_t why_bytes)
{
    static const char *const words[] = {"no", "yes", "off", "on", "false", "true", "0", "1"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *to = i % 2 == 1;
            return true;
        }
    }
    return refuse(why, why_bytes, "expected yes or no");
}

static bool set_choice(int64_t *to, const struct lh_setting *setting, const char *text, char *why, size_t why_bytes)
{
    const char *word = setting->choices;

    for (int64_t place_in_list = 0;; place_in_list++) {
        size_t size = strcspn(word, "|");
        if (strlen(text) == size && strncasecmp(text, word, size) == 0) {
            *to = place_in_list;
            return true;
        }
        if (word[size] == '\0')
            break;
        word += size + 1;
    }
    return refuse(why, why_bytes, "expected one of %s", setting->choices);
}

static char *format_choice(const struct lh_setting *setting, int64_t value)
{
    const char *word = setting->choices;

    while (value-- > 0)
        word += strcspn(word, "|") + 1;
    return lh_format("%.*s", (int)strcspn(word, "|"), word);
}

static bool set_address(char **to, const char *text, char *why, size_t why_bytes)
{
    struct lh_address address;

    if (strcmp(text, "none") == 0) {
        free(*to);
        *to = NULL;
        return true;
    }
    if (!lh_address_parse(text, &address, why, why_bytes))
        return false;
    free(*to);
    *to = lh_strdup(text);
    return true;
}

static void append_string(struct lh_strings *strings, const char *text)
{
    strings->items = lh_realloc(strings->items, strings->count + 1, sizeof(char *));
    strings->items[strings->count++] = lh_strdup(text);
}

static bool set_list(struct lh_strings *to, bool are_addresses, const char *text, char *why, size_t why_bytes)
{
    char *list = lh_strdup(text);
    char *rest = list;
    bool is_valid = true;

    for (char *word; is_valid && (word = strsep(&rest, ",")) != NULL;) {
        struct lh_address address;
        word += strspn(word, " \t");
        word[strcspn(word, " \t")] = '\0';
        if (*word == '\0')
            continue;
        is_valid = !are_addresses || lh_address_parse(word, &address, why, why_bytes);
        if (is_valid)
            append_string(to, word);
    }
    free(list);
    if (is_valid && are_addresses && to->count == 0)
        return refuse(why, why_bytes, "must not be empty");
    return is_valid;
}

static void clear_strings(struct lh_strings *strings)
{
    for (size_t i = 0; i < strings->count; i++)
        free(strings->items[i]);
    free(strings->items);
    memset(strings, 0, sizeof(*strings));
}

void lh_setting_clear(struct lh_settings *settings, const struct lh_setting *setting)
{
    char **string = lh_setting_place(settings, setting);

    if (setting->type == LH_TYPE_ADDRESSES || setting->type == LH_TYPE_WORDS) {
        clear_strings(lh_setting_place(settings, setting));
    } else if (setting->type == LH_TYPE_STRING || setting->type == LH_TYPE_ADDRESS) {
        free(*string);
        *string = NULL;
    }
}

bool lh_setting_set(struct lh_settings *settings, const struct lh_setting *setting, const char *text, bool extend,
                    char *why, size_t why_bytes)
{
    void *to = lh_setting_place(settings, setting);

    switch (setting->type) {
    case LH_TYPE_STRING: {
        char **string = to;
        if (*text == '\0')
            return refuse(why, why_bytes, "must not be empty");
        free(*string);
        *string = lh_strdup(text);
        return true;
    }
    case LH_TYPE_ADDRESS:
        return set_address(to, text, why, why_bytes);
    case LH_TYPE_ADDRESSES:
    case LH_TYPE_WORDS:
        if (!extend)
            lh_setting_clear(settings, setting);
        return set_list(to, setting->type == LH_TYPE_ADDRESSES, text, why, why_bytes);
    case LH_TYPE_INT:
    case LH_TYPE_DURATION:
    case LH_TYPE_MODE:
    case LH_TYPE_SIZE:
    case LH_TYPE_RATIO:
        return set_number(to, setting, text, why, why_bytes);
    case LH_TYPE_BOOL:
        return set_bool(to, text, why, why_bytes);
    case LH_TYPE_CHOICE:
        return set_choice(to, setting, text, why, why_bytes);
    }
    abort();
}

static char *join(const struct lh_strings *strings)
{
    struct lh_buffer text = {0};

    for (size_t i = 0; i < strings->count; i++) {
        if (i > 0)
            lh_buffer_append(&text, ", ", 2);
        lh_buffer_append(&text, strings->items[i], strlen(strings->items[i]));
    }
    lh_buffer_append(&text, "", 1);
    return (char *)text.data;
}

char *lh_setting_format(const struct lh_settings *settings, const struct lh_setting *setting)
{
    const void *from = lh_setting_place(settings, setting);

    switch (setting->type) {
    case LH_TYPE_STRING:
        return lh_strdup(*(char *const *)from);
    case LH_TYPE_ADDRESS: {
        const char *text = *(char *const *)from;
        return lh_strdup(text == NULL ? "none" : text);
    }
    case LH_TYPE_ADDRESSES:
    case LH_TYPE_WORDS:
        return join(from);
    case LH_TYPE_INT:
    case LH_TYPE_DURATION:
    case LH_TYPE_MODE:
    case LH_TYPE_SIZE:
    case LH_TYPE_RATIO:
        return format_number(setting, *(const int64_t *)from);
    case LH_TYPE_BOOL:
        return lh_strdup(*(const bool *)from ? "yes" : "no");
    case LH_TYPE_CHOICE:
        return format_choice(setting, *(const int64_t *)from);
    }
    abort();
}

/* --- what is wrong, a line each --- */

void lh_config_error(struct lh_config_errors *errors, const char *format, ...)
{
    struct lh_buffer buffer = {(unsigned char *)errors->text, errors->size,
                               errors->text == NULL ? 0 : errors->size + 1};
    va_list arguments;
    char *line;

    va_start(arguments, format);
    if (vasprintf(&line, format, arguments) < 0)
        line = lh_strdup("out of memory");
    va_end(arguments);
    lh_buffer_append(&buffer, line, strlen(line));
    lh_buffer_append(&buffer, "\n", 2);
    errors->text = (char *)buffer.data;
    errors->size = buffer.size - 1;
    free(line);
}

void lh_config_errors_finish(struct lh_config_errors *errors)
{
    free(errors->text);
    memset(errors, 0, sizeof(*errors));
}
