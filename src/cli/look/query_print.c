#include "cli/look/query_internal.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/print.h"
#include "json/print.h"

/* NULL: there is no value. A new string. */
static char *cell_text(const struct lh_column *column, const char *text)
{
    int64_t number = text != NULL ? strtoll(text, NULL, 10) : 0;
    char formatted[LH_TIME_TEXT_BYTES > LH_DURATION_TEXT_BYTES ? LH_TIME_TEXT_BYTES : LH_DURATION_TEXT_BYTES];

    if (text == NULL)
        return NULL;
    switch (column->kind) {
    case LH_COLUMN_NAMESPACE:
        return lh_format(strchr(text, '/') != NULL ? "\"%s\"" : "%s", text);
    case LH_COLUMN_DURATION:
    case LH_COLUMN_HELD:
        lh_duration_format(number, formatted);
        return lh_strdup(formatted);
    case LH_COLUMN_TIME:
        lh_time_format(number / LH_US_PER_S, formatted);
        return lh_strdup(formatted);
    case LH_COLUMN_BOOL:
        return lh_strdup(text[0] == 't' ? "yes" : "no");
    case LH_COLUMN_UNITS:
        return number > 0 ? lh_strdup(text) : NULL;
    case LH_COLUMN_SLOTS: /* "{1,2}" */
        return lh_format("%.*s", (int)strcspn(text + 1, "}"), text + 1);
    default:
        return lh_strdup(text);
    }
}

static json_t *slots_json(const char *text)
{
    json_t *slots = json_array();

    for (const char *at = text; at != NULL && at[1] != '}'; at = strchr(at + 1, ','))
        json_array_append_new(slots, json_integer(strtoll(at + 1, NULL, 10)));
    return slots;
}

static json_t *cell_json(const struct lh_column *column, const char *text)
{
    int64_t us = text != NULL ? strtoll(text, NULL, 10) : 0;
    int64_t fraction_us = (us % LH_US_PER_S + LH_US_PER_S) % LH_US_PER_S;
    char formatted[LH_JSON_TIME_BYTES];

    if (text == NULL)
        return json_null();
    switch (column->kind) {
    case LH_COLUMN_COUNT:
    case LH_COLUMN_COUNT_OF_HOLD:
    case LH_COLUMN_PLACE:
    case LH_COLUMN_UNITS:
        return json_integer(us);
    case LH_COLUMN_DURATION:
    case LH_COLUMN_HELD:
        lh_json_duration(us / LH_US_PER_S, (int32_t)(us % LH_US_PER_S) * 1000, formatted);
        return json_string(formatted);
    case LH_COLUMN_TIME:
        lh_json_timestamp((us - fraction_us) / LH_US_PER_S, (int32_t)fraction_us * 1000, formatted);
        return json_string(formatted);
    case LH_COLUMN_BOOL:
        return json_boolean(text[0] == 't');
    case LH_COLUMN_SLOTS:
        return slots_json(text);
    case LH_COLUMN_JSON:
        return json_loads(text, JSON_DECODE_ANY, NULL);
    default:
        return json_string(text);
    }
}

static void print_json(const struct lh_query *query, const struct lh_query_cells *rows)
{
    json_t *list = json_array(), *all;

    for (size_t row = 0; row < rows->count; row++) {
        json_t *object = json_object();
        for (size_t i = 0; i < rows->column_count; i++)
            json_object_set_new(object, query->columns[i].name,
                                cell_json(&query->columns[i], rows->cells[row * rows->column_count + i]));
        json_array_append_new(list, object);
    }
    all = query->list != NULL ? json_pack("{s:o}", query->list, list) : json_incref(json_array_get(list, 0));
    json_dumpf(all, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(all);
    if (query->list == NULL)
        json_decref(list);
}

static bool is_number(enum lh_column_kind kind)
{
    return kind == LH_COLUMN_COUNT || kind == LH_COLUMN_PLACE || kind == LH_COLUMN_UNITS || kind == LH_COLUMN_INT64;
}

static void print_table(const struct lh_query *query, const struct lh_query_cells *rows)
{
    struct lh_grid table = {0};

    for (const struct lh_column *column = query->columns; column->name != NULL && column->heading != NULL; column++) {
        if (is_number(column->kind))
            table.right |= 1u << table.columns;
        lh_grid_add(&table, "%s", column->heading);
        table.columns++;
    }
    for (size_t row = 0; row < rows->count; row++)
        for (size_t i = 0; i < table.columns; i++) {
            char *text = cell_text(&query->columns[i], rows->cells[row * rows->column_count + i]);
            lh_grid_add(&table, "%s", text != NULL ? text : "");
            free(text);
        }
    lh_grid_print(&table, stdout);
}

static void print_card(const struct lh_query *query, const struct lh_query_cells *rows)
{
    struct lh_grid card = {.columns = 2};

    for (size_t i = 0; i < rows->column_count && query->columns[i].heading != NULL; i++) {
        char *text = cell_text(&query->columns[i], rows->cells[i]);
        if (text != NULL)
            lh_grid_row(&card, query->columns[i].heading, "%s", text);
        free(text);
    }
    lh_grid_print(&card, stdout);
}

void lh_query_print(const struct lh_cli *cli, const struct lh_query *query, const struct lh_query_cells *rows)
{
    if (cli->output == LH_OUTPUT_JSON)
        print_json(query, rows);
    else if (rows->count == 0)
        fprintf(stderr, "%s\n", query->empty);
    else if (query->list == NULL)
        print_card(query, rows);
    else
        print_table(query, rows);
}
