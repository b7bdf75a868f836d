#include "service/edge/violations.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* What was cut, or quoted from elsewhere, may end within a character; protobuf strings must not. */
static void trim(char *text)
{
    size_t length = strlen(text);
    while (length > 0 && !lh_utf8_is_valid(text, length))
        text[--length] = '\0';
}

static size_t append(char path[LH_VIOLATION_FIELD_BYTES], size_t used, const char *text, size_t size)
{
    size_t room = LH_VIOLATION_FIELD_BYTES - 1 - used;

    size = size < room ? size : room;
    memcpy(path + used, text, size);
    return used + size;
}

const char *lh_field_member(char path[LH_VIOLATION_FIELD_BYTES], const char *field, const char *member)
{
    size_t used = append(path, 0, field, strlen(field));

    used = append(path, used, ".", 1);
    used = append(path, used, member, strlen(member));
    path[used] = '\0';
    return path;
}

const char *lh_field_nth(char path[LH_VIOLATION_FIELD_BYTES], const char *field, size_t index)
{
    char digits[24];
    size_t used = append(path, 0, field, strlen(field)), at = sizeof(digits);

    digits[--at] = ']';
    do {
        digits[--at] = (char)('0' + index % 10);
        index /= 10;
    } while (index > 0);
    digits[--at] = '[';
    used = append(path, used, digits + at, sizeof(digits) - at);
    path[used] = '\0';
    return path;
}

bool lh_violations_add(struct lh_violations *violations, const char *field, const char *limit_format, ...)
{
    struct lh_violation *violation;
    va_list arguments;

    for (size_t i = 0; i < violations->count; i++)
        if (strncmp(violations->list[i].field, field, LH_VIOLATION_FIELD_BYTES - 1) == 0)
            return false;
    if (violations->count == LH_VIOLATIONS_MAX) {
        violations->omitted++;
        return false;
    }
    violation = &violations->list[violations->count++];
    snprintf(violation->field, sizeof(violation->field), "%s", field);
    trim(violation->field);
    va_start(arguments, limit_format);
    vsnprintf(violation->limit, sizeof(violation->limit), limit_format, arguments);
    va_end(arguments);
    trim(violation->limit);
    return false;
}

void lh_violations_sentence(const struct lh_violations *violations, char *text, size_t size)
{
    size_t used = 0, left_out = violations->omitted;

    text[0] = '\0';
    for (size_t i = 0; i < violations->count; i++) {
        const struct lh_violation *violation = &violations->list[i];
        int length = snprintf(NULL, 0, "%s%s %s", used > 0 ? "; " : "", violation->field, violation->limit);
        if (used + (size_t)length + sizeof(" (and 4294967295 more)") > size) {
            left_out += violations->count - i;
            break;
        }
        used += (size_t)snprintf(text + used, size - used, "%s%s %s", used > 0 ? "; " : "", violation->field,
                                 violation->limit);
    }
    if (left_out > 0)
        snprintf(text + used, size - used, " (and %zu more)", left_out);
}
