#include "cli/look/query_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/arguments.h"
#include "cli/database.h"
#include "cli/server.h"
#include "leasehold/v1/console.pb-c.h"
#include "json/row_message.h"

/*
 * From the database they are the rows of a statement; from a daemon the fields of its messages that have the columns'
 * names. Either way they are put into the same words, so that what is printed does not tell which it was.
 */

static size_t columns_of(const struct lh_query *query)
{
    size_t count = 0;

    while (query->columns[count].name != NULL)
        count++;
    return count;
}

/* --- the same words from both --- */

static size_t column_at(const struct lh_query *query, const char *name)
{
    size_t at = 0;

    while (strcmp(query->columns[at].name, name) != 0)
        at++;
    return at;
}

static const char *held(const struct lh_query *query, struct lh_query_cells *rows, const char *const *cells)
{
    const char *from = cells[column_at(query, "acquired_at")], *to = cells[column_at(query, "ended_at")];
    char us[24];

    if (from == NULL || to == NULL)
        return NULL;
    snprintf(us, sizeof(us), "%lld", strtoll(to, NULL, 10) - strtoll(from, NULL, 10));
    return lh_arena_strdup(&rows->arena, us);
}

static void make_alike(const struct lh_query *query, struct lh_query_cells *rows, const char **cells)
{
    for (size_t i = 0; i < rows->column_count; i++) {
        enum lh_column_kind kind = query->columns[i].kind;
        bool is_zero = cells[i] != NULL && strcmp(cells[i], "0") == 0;
        if (cells[i] != NULL && (cells[i][0] == '\0' || (kind == LH_COLUMN_SLOTS && strcmp(cells[i], "{}") == 0)))
            cells[i] = NULL;
        if ((kind == LH_COLUMN_INT64 || kind == LH_COLUMN_PLACE) && is_zero)
            cells[i] = NULL;
        if ((kind == LH_COLUMN_COUNT_OF_HOLD || kind == LH_COLUMN_UNITS) && cells[column_at(query, "mode")] == NULL)
            cells[i] = NULL;
        if (kind == LH_COLUMN_HELD)
            cells[i] = held(query, rows, cells);
    }
}

static void make_room(const struct lh_query *query, struct lh_query_cells *rows, size_t count)
{
    rows->count = count;
    rows->column_count = columns_of(query);
    rows->cells = lh_arena_alloc(&rows->arena, (count * rows->column_count + 1) * sizeof(*rows->cells));
    memset(rows->cells, 0, count * rows->column_count * sizeof(*rows->cells));
}

/* --- from the database --- */

/* $1 namespace or null, $2 key or null, $3 with children, $4 rows at most. A new string. */
static char *statement_of(const struct lh_query *query)
{
    char *columns = lh_strdup(""), *statement;

    for (const struct lh_column *column = query->columns; column->name != NULL; column++) {
        bool is_time = column->kind == LH_COLUMN_DURATION || column->kind == LH_COLUMN_TIME;
        const char *comma = columns[0] != '\0' ? ", " : "";
        char *more;
        if (column->kind == LH_COLUMN_HELD)
            more = lh_format("%s%snull as %s", columns, comma, column->name);
        else
            more = lh_format(is_time ? "%s%s(extract(epoch from r.%s) * 1000000)::bigint as %s" : "%s%sr.%s as %s",
                             columns, comma, column->name, column->name);
        free(columns);
        columns = more;
    }
    statement = lh_format("select %s from (%s) r where ($2::text is null or r.key = $2) and ($1::text is null"
                          " or r.namespace = $1 or ($3::boolean and starts_with(r.namespace, $1 || '.')))"
                          " order by %s limit $4::bigint",
                          columns, query->rows, query->order);
    free(columns);
    return statement;
}

static enum lh_exit by_database(struct lh_cli *cli, const struct lh_query *query, const struct lh_asked_for *asked,
                                struct lh_query_cells *rows)
{
    char *statement = statement_of(query), max[24];
    const char *values[] = {asked->ns, asked->key, asked->include_children ? "true" : "false", max};
    PGresult *result;

    snprintf(max, sizeof(max), "%" PRId32, asked->max);
    result = lh_ask_database(cli, &(struct lh_ask){.sql = statement, .values = values, .value_count = 4});
    if (result != NULL) {
        make_room(query, rows, (size_t)PQntuples(result));
        for (size_t i = 0; i < rows->count * rows->column_count; i++) {
            int row = (int)(i / rows->column_count), column = (int)(i % rows->column_count);
            if (!PQgetisnull(result, row, column))
                rows->cells[i] = lh_arena_strdup(&rows->arena, PQgetvalue(result, row, column));
        }
    }
    PQclear(result);
    free(statement);
    return cli->status;
}

/* --- from a daemon --- */

static const char *scope_text(struct lh_arena *arena, const Leasehold__V1__Scope *scope, const char *name)
{
    struct lh_buffer text = {0};
    const char *copy;

    if (strcmp(name, "key") == 0)
        return lh_arena_strdup(arena, scope->key);
    for (size_t i = 0; i < scope->n_namespace_; i++) {
        lh_buffer_append(&text, ".", i > 0);
        lh_buffer_append(&text, scope->namespace_[i], strlen(scope->namespace_[i]));
    }
    lh_buffer_append(&text, "", 1);
    copy = lh_arena_strdup(arena, (const char *)text.data);
    lh_buffer_finish(&text);
    return copy;
}

static const char *number_text(struct lh_arena *arena, int64_t number)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRId64, number);
    return lh_arena_strdup(arena, text);
}

static const char *numbers_text(struct lh_arena *arena, const int32_t *numbers, size_t count)
{
    struct lh_buffer text = {0};
    const char *copy;

    for (size_t i = 0; i < count; i++) {
        const char *number = number_text(arena, numbers[i]);
        lh_buffer_append(&text, i == 0 ? "{" : ",", 1);
        lh_buffer_append(&text, number, strlen(number));
    }
    lh_buffer_append(&text, "}", 2);
    copy = count > 0 ? lh_arena_strdup(arena, (const char *)text.data) : NULL;
    lh_buffer_finish(&text);
    return copy;
}

static const char *field_text(struct lh_arena *arena, const ProtobufCMessage *message, const char *name)
{
    bool is_of_scope = strcmp(name, "namespace") == 0 || strcmp(name, "key") == 0;
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field_by_name(message->descriptor, is_of_scope ? "scope" : name);
    const void *at = field != NULL ? (const char *)message + field->offset : NULL;
    const void *inner = at != NULL && field->type == PROTOBUF_C_TYPE_MESSAGE ? *(const void *const *)at : NULL;

    if (at == NULL || (field->type == PROTOBUF_C_TYPE_MESSAGE && inner == NULL))
        return NULL;
    if (is_of_scope)
        return scope_text(arena, inner, name);
    if (inner != NULL)
        return number_text(arena, field->descriptor == &google__protobuf__duration__descriptor
                                      ? lh_duration_us(inner)
                                      : lh_timestamp_us(inner));
    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        return numbers_text(arena, *(const int32_t *const *)at,
                            *(const size_t *)(const void *)((const char *)message + field->quantifier_offset));
    if (field->type == PROTOBUF_C_TYPE_STRING)
        return lh_arena_strdup(arena, *(const char *const *)at);
    if (field->type == PROTOBUF_C_TYPE_BOOL)
        return *(const protobuf_c_boolean *)at ? "t" : "f";
    if (field->type == PROTOBUF_C_TYPE_ENUM)
        return lh_message_word(field->descriptor, *(const int *)at, arena);
    return number_text(arena, field->type == PROTOBUF_C_TYPE_INT64 ? *(const int64_t *)at : *(const int32_t *)at);
}

/* Of a list its first field is what is listed. */
static void take_answer(const struct lh_query *query, const void *answer, size_t max, struct lh_query_cells *rows)
{
    size_t count = 1;
    const void *const *items = query->list != NULL ? (const void *const *)lh_message_list(answer, &count) : &answer;

    make_room(query, rows, count < max ? count : max);
    for (size_t row = 0; row < rows->count; row++)
        for (size_t i = 0; i < rows->column_count; i++)
            rows->cells[row * rows->column_count + i] = field_text(&rows->arena, items[row], query->columns[i].name);
}

static enum lh_exit by_server(struct lh_cli *cli, const struct lh_query *query, const struct lh_asked_for *asked,
                              struct lh_query_cells *rows)
{
    Leasehold__V1__ListRequest request = LEASEHOLD__V1__LIST_REQUEST__INIT;
    Leasehold__V1__ExplainRequest of_scope = LEASEHOLD__V1__EXPLAIN_REQUEST__INIT;
    const char *ns = asked->ns != NULL ? asked->ns : "";
    const Leasehold__V1__Namespace *in;
    const void *answer;

    if (query->list == NULL)
        of_scope.scope = lh_message_scope(ns, asked->key, &cli->arena);
    in = lh_take_namespace(ns, &cli->arena);
    request.namespace_ = in->segments;
    request.n_namespace_ = in->n_segments;
    if (asked->key != NULL)
        request.key = (char *)(uintptr_t)asked->key;
    request.include_children = asked->include_children && asked->key == NULL;
    answer = lh_ask(cli, query->list != NULL ? &request.base : &of_scope.base,
                    &(struct lh_ask){.method = query->method, .max = (size_t)asked->max});
    if (answer != NULL)
        take_answer(query, answer, (size_t)asked->max, rows);
    return cli->status;
}

enum lh_exit lh_query_rows(struct lh_cli *cli, const struct lh_query *query, const struct lh_asked_for *asked,
                           struct lh_query_cells *rows)
{
    enum lh_exit status =
        cli->uses_database ? by_database(cli, query, asked, rows) : by_server(cli, query, asked, rows);

    for (size_t row = 0; status == LH_EXIT_DONE && row < rows->count; row++)
        make_alike(query, rows, rows->cells + row * rows->column_count);
    return status;
}
