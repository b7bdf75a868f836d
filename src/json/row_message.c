#include "json/row_message.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"

/* --- values --- */

Google__Protobuf__Duration *lh_message_duration(int64_t duration_us, struct lh_arena *arena)
{
    Google__Protobuf__Duration *duration = lh_arena_alloc(arena, sizeof(*duration));

    google__protobuf__duration__init(duration);
    /* C rounds towards zero, so that both have the same sign, as Duration wants it. */
    duration->seconds = duration_us / LH_US_PER_S;
    duration->nanos = (int32_t)(duration_us % LH_US_PER_S * 1000);
    return duration;
}

Google__Protobuf__Timestamp *lh_message_timestamp(int64_t time_us, struct lh_arena *arena)
{
    Google__Protobuf__Timestamp *timestamp = lh_message_new(&google__protobuf__timestamp__descriptor, arena);
    int64_t rest_us = time_us % LH_US_PER_S;

    timestamp->seconds = time_us / LH_US_PER_S - (rest_us < 0);
    /* Nanos count forward, before 1970 too. */
    timestamp->nanos = (int32_t)((rest_us < 0 ? rest_us + LH_US_PER_S : rest_us) * 1000);
    return timestamp;
}

static size_t split(const char *ns, struct lh_arena *arena, char ***segments)
{
    size_t count = 1;
    char *copy;

    *segments = NULL;
    if (ns[0] == '\0')
        return 0;
    for (const char *dot = strchr(ns, '.'); dot != NULL; dot = strchr(dot + 1, '.'))
        count++;
    copy = lh_arena_strdup(arena, ns);
    *segments = lh_arena_alloc(arena, count * sizeof(**segments));
    for (size_t i = 0; i < count; i++) {
        char *dot = strchr(copy, '.');
        (*segments)[i] = copy;
        if (dot != NULL) {
            *dot = '\0';
            copy = dot + 1;
        }
    }
    return count;
}

Leasehold__V1__Namespace *lh_message_namespace(const char *ns, struct lh_arena *arena)
{
    Leasehold__V1__Namespace *message = lh_message_new(&leasehold__v1__namespace__descriptor, arena);

    message->n_segments = split(ns, arena, &message->segments);
    return message;
}

Leasehold__V1__Scope *lh_message_scope(const char *ns, const char *key, struct lh_arena *arena)
{
    Leasehold__V1__Scope *scope = lh_message_new(&leasehold__v1__scope__descriptor, arena);

    scope->n_namespace_ = split(ns, arena, &scope->namespace_);
    scope->key = (char *)(uintptr_t)key;
    return scope;
}

const char *lh_message_dotted(char *const *segments, size_t count, struct lh_arena *arena)
{
    const char *text = count > 0 ? segments[0] : "";

    for (size_t i = 1; i < count; i++)
        text = lh_arena_format(arena, "%s.%s", text, segments[i]);
    return text;
}

void *lh_message_new(const ProtobufCMessageDescriptor *type, struct lh_arena *arena)
{
    ProtobufCMessage *message = lh_arena_alloc(arena, type->sizeof_message);

    protobuf_c_message_init(type, message);
    return message;
}

/* --- cells --- */

static void *scope_of(const struct lh_rows *rows, size_t row, const char *name, struct lh_arena *arena)
{
    char column[64];
    const char *ns, *key;

    if (strcmp(name, "scope") == 0) {
        ns = lh_rows_cell(rows, row, "namespace");
        key = lh_rows_cell(rows, row, "key");
    } else {
        snprintf(column, sizeof(column), "%s_namespace", name);
        ns = lh_rows_cell(rows, row, column);
        snprintf(column, sizeof(column), "%s_key", name);
        key = lh_rows_cell(rows, row, column);
    }
    return ns == NULL || key == NULL ? NULL : lh_message_scope(ns, key, arena);
}

static void *wrapper_of(const ProtobufCMessageDescriptor *type, const char *cell, struct lh_arena *arena)
{
    void *message = lh_message_new(type, arena);

    if (type == &google__protobuf__bool_value__descriptor)
        ((Google__Protobuf__BoolValue *)message)->value = cell[0] == 't';
    else if (type == &google__protobuf__int32_value__descriptor)
        ((Google__Protobuf__Int32Value *)message)->value = (int32_t)strtol(cell, NULL, 10);
    else
        ((Google__Protobuf__Int64Value *)message)->value = strtoll(cell, NULL, 10);
    return message;
}

static void *message_of(const struct lh_rows *rows, size_t row, const ProtobufCFieldDescriptor *field,
                        struct lh_arena *arena)
{
    const char *cell = lh_rows_cell(rows, row, field->name);

    if (field->descriptor == &leasehold__v1__scope__descriptor)
        return scope_of(rows, row, field->name, arena);
    if (cell == NULL)
        return NULL;
    if (field->descriptor == &leasehold__v1__namespace__descriptor)
        return lh_message_namespace(cell, arena);
    if (field->descriptor == &google__protobuf__duration__descriptor)
        return lh_message_duration(strtoll(cell, NULL, 10), arena);
    if (field->descriptor == &google__protobuf__timestamp__descriptor)
        return lh_message_timestamp(strtoll(cell, NULL, 10), arena);
    return wrapper_of(field->descriptor, cell, arena);
}

/* The values of an enum begin with its name, TickState's with TICK_STATE_. */
static size_t prefix_of(const ProtobufCEnumDescriptor *type)
{
    size_t prefix = 0;

    for (const char *c = type->short_name; *c != '\0'; c++)
        prefix += 1 + (isupper((unsigned char)*c) != 0);
    return prefix;
}

const char *lh_message_word(const ProtobufCEnumDescriptor *type, int value, struct lh_arena *arena)
{
    const ProtobufCEnumValue *found = value == 0 ? NULL : protobuf_c_enum_descriptor_get_value(type, value);
    char *word;

    if (found == NULL)
        return NULL;
    word = lh_arena_strdup(arena, found->name + prefix_of(type));
    for (char *c = word; *c != '\0'; c++)
        *c = (char)tolower((unsigned char)*c);
    return word;
}

/* The number of MODE_SHARED for "shared". 0: this program is older. */
static int enum_of(const ProtobufCEnumDescriptor *type, const char *cell, size_t size)
{
    size_t prefix = prefix_of(type);

    for (unsigned i = 0; i < type->n_values; i++) {
        const char *name = type->values[i].name + prefix;
        if (strncasecmp(name, cell, size) == 0 && name[size] == '\0')
            return type->values[i].value;
    }
    return 0;
}

static int compare_numbers(const void *one, const void *other)
{
    return *(const int32_t *)one - *(const int32_t *)other;
}

/* "1,2,3", "read,lease" */
static void fill_list(int32_t **numbers, size_t *count, const ProtobufCFieldDescriptor *field, const char *cell,
                      struct lh_arena *arena)
{
    size_t most = 1, size;

    for (const char *c = cell; *c != '\0'; c++)
        most += *c == ',';
    *numbers = lh_arena_alloc(arena, most * sizeof(**numbers));
    for (; *cell != '\0'; cell += size + (cell[size] == ',')) {
        size = strcspn(cell, ",");
        (*numbers)[*count] = field->type == PROTOBUF_C_TYPE_ENUM ? enum_of(field->descriptor, cell, size)
                                                                 : (int32_t)strtol(cell, NULL, 10);
        *count += field->type != PROTOBUF_C_TYPE_ENUM || (*numbers)[*count] != 0;
    }
    if (field->type == PROTOBUF_C_TYPE_ENUM)
        qsort(*numbers, *count, sizeof(**numbers), compare_numbers);
}

static void fill(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field, const char *cell,
                 struct lh_arena *arena)
{
    void *at = (char *)message + field->offset;

    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        fill_list(at, (size_t *)(void *)((char *)message + field->quantifier_offset), field, cell, arena);
    else if (field->type == PROTOBUF_C_TYPE_STRING)
        *(const char **)at = cell;
    else if (field->type == PROTOBUF_C_TYPE_ENUM)
        *(int *)at = enum_of(field->descriptor, cell, strlen(cell));
    else if (field->type == PROTOBUF_C_TYPE_INT64)
        *(int64_t *)at = strtoll(cell, NULL, 10);
    else if (field->type == PROTOBUF_C_TYPE_INT32)
        *(int32_t *)at = (int32_t)strtol(cell, NULL, 10);
    else if (field->type == PROTOBUF_C_TYPE_BOOL)
        *(protobuf_c_boolean *)at = cell[0] == 't';
}

/* --- messages --- */

void lh_row_fill(ProtobufCMessage *message, const struct lh_rows *rows, size_t row, struct lh_arena *arena)
{
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        bool is_message = field->type == PROTOBUF_C_TYPE_MESSAGE;
        const char *cell = lh_rows_cell(rows, row, field->name);
        void *part;

        if (!is_message && cell != NULL)
            fill(message, field, cell, arena);
        if (!is_message || field->label == PROTOBUF_C_LABEL_REPEATED) /* a map is its caller's */
            continue;
        part = message_of(rows, row, field, arena);
        if (part != NULL)
            *(void **)(void *)((char *)message + field->offset) = part;
    }
}

void *lh_row_message(const ProtobufCMessageDescriptor *type, const struct lh_rows *rows, size_t row,
                     struct lh_arena *arena)
{
    ProtobufCMessage *message = lh_message_new(type, arena);

    lh_row_fill(message, rows, row, arena);
    return message;
}

void *lh_message_field(ProtobufCMessage *message, const char *name)
{
    const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field_by_name(message->descriptor, name);

    return field == NULL ? NULL : (char *)message + field->offset;
}

void **lh_message_list(const ProtobufCMessage *message, size_t *count)
{
    const ProtobufCFieldDescriptor *field = &message->descriptor->fields[0];

    *count = *(const size_t *)(const void *)((const char *)message + field->quantifier_offset);
    return *(void **const *)(const void *)((const char *)message + field->offset);
}

void lh_message_set_list(ProtobufCMessage *message, void *elements, size_t count)
{
    const ProtobufCFieldDescriptor *field = &message->descriptor->fields[0];

    *(size_t *)(void *)((char *)message + field->quantifier_offset) = count;
    *(void **)(void *)((char *)message + field->offset) = elements;
}

void *lh_rows_message(const ProtobufCMessageDescriptor *type, const struct lh_rows *rows, struct lh_arena *arena)
{
    ProtobufCMessage *message = lh_message_new(type, arena);
    const ProtobufCFieldDescriptor *first = &type->fields[0];
    void **elements;

    if (first->label == PROTOBUF_C_LABEL_REPEATED) {
        elements = lh_arena_alloc(arena, (rows->row_count + 1) * sizeof(*elements));
        for (size_t row = 0; row < rows->row_count; row++)
            elements[row] = lh_row_message(first->descriptor, rows, row, arena);
        lh_message_set_list(message, elements, rows->row_count);
    } else if (rows->row_count == 0) {
        return message;
    } else if (first->type == PROTOBUF_C_TYPE_MESSAGE) {
        *(void **)(void *)((char *)message + first->offset) = lh_row_message(first->descriptor, rows, 0, arena);
    } else {
        lh_row_fill(message, rows, 0, arena);
    }
    return message;
}
