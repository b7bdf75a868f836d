#include "cli/columns.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "cli/lease_text.h"
#include "cli/print.h"
#include "json/print.h"
#include "json/row_message.h"

/* What a message has in a column: nothing, a text or a number. */
struct cell {
    bool is_null;
    const char *text;
    int64_t number;
};

/* "read,lease", "1,2" */
static const char *join(const ProtobufCFieldDescriptor *field, const int32_t *values, size_t count,
                        struct lh_arena *arena)
{
    const char *text = "";

    for (size_t i = 0; i < count; i++) {
        const char *word =
            field->type == PROTOBUF_C_TYPE_ENUM ? lh_message_word(field->descriptor, values[i], arena) : NULL;
        if (word == NULL)
            word = lh_arena_format(arena, "%" PRId32, values[i]);
        text = lh_arena_format(arena, "%s%s%s", text, i > 0 ? "," : "", word);
    }
    return text;
}

static struct cell text_cell(const char *text)
{
    return (struct cell){.is_null = text == NULL || text[0] == '\0', .text = text};
}

static struct cell namespace_cell(char *const *segments, size_t count, struct lh_arena *arena)
{
    return (struct cell){.text = lh_message_dotted(segments, count, arena)};
}

static struct cell field_cell(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                              struct lh_arena *arena)
{
    const void *at = (const char *)message + field->offset;
    const void *inner = field->type == PROTOBUF_C_TYPE_MESSAGE ? *(const void *const *)at : NULL;
    size_t count;

    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        count = *(const size_t *)(const void *)((const char *)message + field->quantifier_offset);
        return text_cell(join(field, *(const int32_t *const *)at, count, arena));
    }
    switch (field->type) {
    case PROTOBUF_C_TYPE_MESSAGE:
        if (inner == NULL)
            return (struct cell){.is_null = true};
        if (field->descriptor == &leasehold__v1__namespace__descriptor)
            return namespace_cell(((const Leasehold__V1__Namespace *)inner)->segments,
                                  ((const Leasehold__V1__Namespace *)inner)->n_segments, arena);
        return (struct cell){.number = field->descriptor == &google__protobuf__duration__descriptor
                                           ? lh_duration_us(inner)
                                           : lh_timestamp_us(inner)};
    case PROTOBUF_C_TYPE_STRING:
        return text_cell(*(const char *const *)at);
    case PROTOBUF_C_TYPE_ENUM:
        return text_cell(lh_message_word(field->descriptor, *(const int *)at, arena));
    case PROTOBUF_C_TYPE_BOOL:
        return (struct cell){.number = *(const protobuf_c_boolean *)at};
    case PROTOBUF_C_TYPE_INT64:
        return (struct cell){.number = *(const int64_t *)at};
    default:
        return (struct cell){.number = *(const int32_t *)at};
    }
}

/* A message without the field may have a scope, of which it is a part. */
static struct cell named_cell(const ProtobufCMessage *message, const char *name, struct lh_arena *arena)
{
    const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field_by_name(message->descriptor, name);
    Leasehold__V1__Scope *const *scope = lh_message_field((ProtobufCMessage *)(uintptr_t)message, "scope");

    if (field != NULL)
        return field_cell(message, field, arena);
    if (scope == NULL || *scope == NULL)
        return (struct cell){.is_null = true};
    return strcmp(name, "key") == 0 ? text_cell((*scope)->key)
                                    : namespace_cell((*scope)->namespace_, (*scope)->n_namespace_, arena);
}

static struct cell cell_of(const ProtobufCMessage *message, const struct lh_column *column, struct lh_arena *arena)
{
    struct cell cell, from;

    switch (column->kind) {
    case LH_COLUMN_HELD:
        from = named_cell(message, "acquired_at", arena);
        cell = named_cell(message, "ended_at", arena);
        return (struct cell){.is_null = cell.is_null || from.is_null, .number = cell.number - from.number};
    case LH_COLUMN_NEXT:
        return named_cell(message, "paused", arena).number != 0 ? text_cell("paused")
                                                                : named_cell(message, column->name, arena);
    case LH_COLUMN_INT64:
    case LH_COLUMN_PLACE:
        cell = named_cell(message, column->name, arena);
        cell.is_null = cell.number == 0;
        return cell;
    case LH_COLUMN_COUNT_OF_HOLD:
    case LH_COLUMN_UNITS:
        cell = named_cell(message, column->name, arena);
        cell.is_null = named_cell(message, "mode", arena).is_null;
        return cell;
    default:
        return named_cell(message, column->name, arena);
    }
}

static const char *json_time(int64_t time_us, char text[LH_JSON_TIME_BYTES])
{
    int64_t fraction_us = (time_us % LH_US_PER_S + LH_US_PER_S) % LH_US_PER_S;

    return lh_json_timestamp((time_us - fraction_us) / LH_US_PER_S, (int32_t)fraction_us * 1000, text);
}

/* --- text --- */

const char *lh_column_text(const void *message, const struct lh_column *column, struct lh_arena *arena)
{
    struct cell cell = cell_of(message, column, arena);
    char text[LH_JSON_TIME_BYTES];

    if (cell.is_null || (column->kind == LH_COLUMN_UNITS && cell.number == 0))
        return column->kind == LH_COLUMN_TIME_OR_NEVER ? "never" : NULL;
    if (column->kind == LH_COLUMN_NAMESPACE)
        return lh_namespace_text_of(cell.text, arena);
    if (cell.text != NULL)
        return cell.text;
    switch (column->kind) {
    case LH_COLUMN_DURATION:
    case LH_COLUMN_HELD:
        return lh_arena_strdup(arena, LH_DURATION_TEXT(cell.number));
    case LH_COLUMN_TIME:
    case LH_COLUMN_TIME_OR_NEVER:
        return lh_arena_strdup(arena, LH_TIME_TEXT(cell.number / LH_US_PER_S));
    case LH_COLUMN_INSTANT:
    case LH_COLUMN_NEXT:
        return lh_arena_strdup(arena, json_time(cell.number, text));
    case LH_COLUMN_BOOL:
        return cell.number != 0 ? "yes" : "no";
    default:
        return lh_arena_format(arena, "%" PRId64, cell.number);
    }
}

static bool is_number(enum lh_column_kind kind)
{
    return kind == LH_COLUMN_COUNT || kind == LH_COLUMN_PLACE || kind == LH_COLUMN_UNITS || kind == LH_COLUMN_INT64;
}

void lh_columns_print_table(const struct lh_column *columns, const void *answer, size_t max, const char *empty)
{
    struct lh_grid table = {0};
    struct lh_arena arena = {0};
    size_t count;
    void **rows = lh_message_list(answer, &count);

    if (count == 0) {
        fprintf(stderr, "%s\n", empty);
        return;
    }
    for (; columns[table.columns].name != NULL && columns[table.columns].heading != NULL; table.columns++) {
        table.right |= is_number(columns[table.columns].kind) ? 1u << table.columns : 0;
        lh_grid_texts(&table, columns[table.columns].heading, NULL);
    }
    for (size_t row = 0; row < count && row < max; row++)
        for (size_t i = 0; i < table.columns; i++) {
            const char *text = lh_column_text(rows[row], &columns[i], &arena);
            lh_grid_texts(&table, text != NULL ? text : "", NULL);
        }
    lh_grid_print(&table, stdout);
    lh_arena_finish(&arena);
}

void lh_columns_print_card(const struct lh_column *columns, const void *message)
{
    struct lh_grid card = {.columns = 2};
    struct lh_arena arena = {0};

    for (; columns->name != NULL && columns->heading != NULL; columns++) {
        const char *text = lh_column_text(message, columns, &arena);
        if (text != NULL)
            lh_grid_row(&card, columns->heading, "%s", text);
    }
    lh_grid_print(&card, stdout);
    lh_arena_finish(&arena);
}

/* --- JSON --- */

/* "1,2" */
static json_t *list_json(const char *text)
{
    json_t *list = json_array();

    for (char *rest = (char *)(uintptr_t)text; *rest != '\0'; rest += *rest == ',')
        json_array_append_new(list, json_integer(strtoll(rest, &rest, 10)));
    return list;
}

static json_t *cell_json(const ProtobufCMessage *message, const struct lh_column *column, struct lh_arena *arena)
{
    struct cell cell = cell_of(message, column, arena);
    char text[LH_JSON_TIME_BYTES];

    if (cell.is_null)
        return json_null();
    switch (column->kind) {
    case LH_COLUMN_COUNT:
    case LH_COLUMN_COUNT_OF_HOLD:
    case LH_COLUMN_PLACE:
    case LH_COLUMN_UNITS:
        return json_integer(cell.number);
    case LH_COLUMN_INT64:
        return json_sprintf("%lld", (long long)cell.number);
    case LH_COLUMN_DURATION:
    case LH_COLUMN_HELD:
        return json_string(
            lh_json_duration(cell.number / LH_US_PER_S, (int32_t)(cell.number % LH_US_PER_S) * 1000, text));
    case LH_COLUMN_TIME:
        return json_string(json_time(cell.number, text));
    case LH_COLUMN_BOOL:
        return json_boolean(cell.number != 0);
    case LH_COLUMN_LIST:
        return list_json(cell.text);
    case LH_COLUMN_JSON:
        return json_loads(cell.text, JSON_DECODE_ANY, NULL);
    default:
        return json_string(cell.text);
    }
}

static json_t *object_of(const struct lh_column *columns, const void *message)
{
    struct lh_arena arena = {0};
    json_t *object = json_object();

    for (; columns->name != NULL; columns++)
        json_object_set_new(object, columns->name, cell_json(message, columns, &arena));
    lh_arena_finish(&arena);
    return object;
}

static void print(json_t *json)
{
    json_dumpf(json, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(json);
}

void lh_columns_print_object(const struct lh_column *columns, const void *message)
{
    print(object_of(columns, message));
}

void lh_columns_print_json(const struct lh_column *columns, const char *name, const void *answer, size_t max)
{
    json_t *list = json_array();
    size_t count;
    void **rows = lh_message_list(answer, &count);

    for (size_t row = 0; row < count && row < max; row++)
        json_array_append_new(list, object_of(columns, rows[row]));
    print(json_pack("{s:o}", name, list));
}
