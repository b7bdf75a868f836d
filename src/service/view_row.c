#include "service/view_row.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "leasehold/v1/console.pb-c.h"
#include "service/message.h"

const char *lh_view_cell(const struct lh_view_answer *answer, size_t row, const char *column)
{
    for (size_t i = 0; i < answer->column_count; i++)
        if (strcmp(answer->columns[i], column) == 0)
            return answer->cells[row * answer->column_count + i];
    return NULL;
}

static void *scope_of(const struct lh_view_answer *answer, size_t row, const char *name, struct lh_arena *arena)
{
    char column[64];
    const char *ns, *key;

    if (strcmp(name, "scope") == 0) {
        ns = lh_view_cell(answer, row, "namespace");
        key = lh_view_cell(answer, row, "key");
    } else {
        snprintf(column, sizeof(column), "%s_namespace", name);
        ns = lh_view_cell(answer, row, column);
        snprintf(column, sizeof(column), "%s_key", name);
        key = lh_view_cell(answer, row, column);
    }
    return ns == NULL || key == NULL ? NULL : lh_message_scope(ns, key, arena);
}

static void *message_of(const struct lh_view_answer *answer, size_t row, const ProtobufCFieldDescriptor *field,
                        struct lh_arena *arena)
{
    const char *cell = lh_view_cell(answer, row, field->name);

    if (field->descriptor == &leasehold__v1__scope__descriptor)
        return scope_of(answer, row, field->name, arena);
    if (cell == NULL)
        return NULL;
    if (field->descriptor == &leasehold__v1__namespace__descriptor)
        return lh_message_namespace(cell, arena);
    if (field->descriptor == &google__protobuf__duration__descriptor)
        return lh_message_duration(strtoll(cell, NULL, 10), arena);
    return lh_message_timestamp(strtoll(cell, NULL, 10), arena);
}

/* The number of MODE_SHARED for "shared": the values of an enum begin with its name. */
static int enum_of(const ProtobufCEnumDescriptor *type, const char *cell)
{
    size_t prefix = strlen(type->short_name) + 1;

    for (unsigned i = 0; i < type->n_values; i++)
        if (strcasecmp(type->values[i].name + prefix, cell) == 0)
            return type->values[i].value;
    return 0;
}

/* "1,2,3" */
static void fill_numbers(int32_t **numbers, size_t *count, const char *cell, struct lh_arena *arena)
{
    size_t most = 1;

    for (const char *c = cell; *c != '\0'; c++)
        most += *c == ',';
    *numbers = lh_arena_alloc(arena, most * sizeof(**numbers));
    for (char *end; *cell != '\0'; cell = end + (*end == ',')) {
        (*numbers)[*count] = (int32_t)strtol(cell, &end, 10);
        if (end == cell)
            break;
        (*count)++;
    }
}

void lh_view_row_fill(ProtobufCMessage *message, const struct lh_view_answer *answer, size_t row,
                      struct lh_arena *arena)
{
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        void *at = (char *)message + field->offset;
        const char *cell;

        if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
            *(void **)at = message_of(answer, row, field, arena);
            continue;
        }
        cell = lh_view_cell(answer, row, field->name);
        if (cell == NULL)
            continue;
        if (field->label == PROTOBUF_C_LABEL_REPEATED)
            fill_numbers(at, (size_t *)(void *)((char *)message + field->quantifier_offset), cell, arena);
        else if (field->type == PROTOBUF_C_TYPE_STRING)
            *(const char **)at = cell;
        else if (field->type == PROTOBUF_C_TYPE_ENUM)
            *(int *)at = enum_of(field->descriptor, cell);
        else if (field->type == PROTOBUF_C_TYPE_INT64)
            *(int64_t *)at = strtoll(cell, NULL, 10);
        else if (field->type == PROTOBUF_C_TYPE_INT32)
            *(int32_t *)at = (int32_t)strtol(cell, NULL, 10);
        else if (field->type == PROTOBUF_C_TYPE_BOOL)
            *(protobuf_c_boolean *)at = strcmp(cell, "true") == 0;
    }
}
