#include "pg/values.h"

#include <assert.h>
#include <endian.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Dimensions, null flag, element type; then length and lower bound of the one dimension. */
#define ARRAY_EMPTY_HEADER_BYTES 12

void lh_pg_params_reset(struct lh_pg_params *params)
{
    params->count = 0;
    params->is_in_array = false;
    params->bytes.size = 0;
}

void lh_pg_params_finish(struct lh_pg_params *params)
{
    lh_buffer_finish(&params->bytes);
    params->count = 0;
}

static void put_u32(struct lh_buffer *bytes, uint32_t value)
{
    value = htobe32(value);
    lh_buffer_append(bytes, &value, sizeof(value));
}

static void put(struct lh_pg_params *params, const void *data, size_t size)
{
    assert(size <= INT_MAX);
    if (params->is_in_array) {
        params->array_elements++;
        put_u32(&params->bytes, (uint32_t)size);
    } else {
        assert(params->count < LH_PG_PARAMS_MAX);
        params->values[params->count].offset = params->bytes.size;
        params->values[params->count++].length = (int)size;
    }
    lh_buffer_append(&params->bytes, data, size);
}

void lh_pg_add_null(struct lh_pg_params *params)
{
    if (params->is_in_array) {
        params->array_elements++;
        params->array_nulls++;
        put_u32(&params->bytes, UINT32_MAX);
    } else {
        put(params, NULL, 0);
        params->values[params->count - 1].length = -1;
    }
}

void lh_pg_add_bool(struct lh_pg_params *params, bool value)
{
    unsigned char byte = value;
    put(params, &byte, 1);
}

void lh_pg_add_int4(struct lh_pg_params *params, int32_t value)
{
    uint32_t bits = htobe32((uint32_t)value);
    put(params, &bits, sizeof(bits));
}

void lh_pg_add_int8(struct lh_pg_params *params, int64_t value)
{
    uint64_t bits = htobe64((uint64_t)value);
    put(params, &bits, sizeof(bits));
}

void lh_pg_add_int8_unless(struct lh_pg_params *params, int64_t value, int64_t null)
{
    if (value == null)
        lh_pg_add_null(params);
    else
        lh_pg_add_int8(params, value);
}

void lh_pg_add_text(struct lh_pg_params *params, const char *value)
{
    if (value == NULL)
        lh_pg_add_null(params);
    else
        put(params, value, strlen(value));
}

void lh_pg_add_uuid(struct lh_pg_params *params, const struct lh_uuid *value)
{
    put(params, value->bytes, sizeof(value->bytes));
}

void lh_pg_add_timestamptz(struct lh_pg_params *params, int64_t unix_us)
{
    lh_pg_add_int8(params, unix_us - LH_PG_EPOCH_US);
}

void lh_pg_array_begin(struct lh_pg_params *params, uint32_t element_type)
{
    assert(!params->is_in_array);
    put(params, NULL, 0);
    params->is_in_array = true;
    params->array_at = params->bytes.size;
    params->array_elements = 0;
    params->array_nulls = 0;
    put_u32(&params->bytes, 1);
    put_u32(&params->bytes, 0); /* the null flag: lh_pg_array_end knows */
    put_u32(&params->bytes, element_type);
    put_u32(&params->bytes, 0); /* the length: lh_pg_array_end knows */
    put_u32(&params->bytes, 1);
}

static void patch_u32(struct lh_buffer *bytes, size_t offset, uint32_t value)
{
    value = htobe32(value);
    memcpy(bytes->data + offset, &value, sizeof(value));
}

void lh_pg_array_end(struct lh_pg_params *params)
{
    struct lh_buffer *bytes = &params->bytes;
    size_t at = params->array_at;

    if (params->array_elements == 0) {
        /* An empty array has no dimension at all. */
        patch_u32(bytes, at, 0);
        bytes->size = at + ARRAY_EMPTY_HEADER_BYTES;
    } else {
        patch_u32(bytes, at + 4, params->array_nulls > 0);
        patch_u32(bytes, at + ARRAY_EMPTY_HEADER_BYTES, params->array_elements);
    }
    assert(bytes->size - at <= INT_MAX);
    params->values[params->count - 1].length = (int)(bytes->size - at);
    params->is_in_array = false;
}

void lh_pg_array_end_or_null(struct lh_pg_params *params)
{
    if (params->array_nulls < params->array_elements) {
        lh_pg_array_end(params);
        return;
    }
    params->bytes.size = params->array_at;
    params->values[params->count - 1].length = -1;
    params->is_in_array = false;
}

/* --- results --- */

bool lh_pg_result_columns(const PGresult *result, const char *const *names, int *columns, size_t count)
{
    bool is_complete = true;
    for (size_t i = 0; i < count; i++) {
        columns[i] = PQfnumber(result, names[i]);
        is_complete = is_complete && columns[i] >= 0;
    }
    return is_complete;
}

/* The value's bytes when it has exactly `size` of them. */
static const char *value_of(const PGresult *result, int row, int column, int size)
{
    if (column < 0 || PQgetisnull(result, row, column) || PQgetlength(result, row, column) != size)
        return NULL;
    return PQgetvalue(result, row, column);
}

static uint32_t read_u32(const char *bytes)
{
    uint32_t bits;
    memcpy(&bits, bytes, sizeof(bits));
    return be32toh(bits);
}

static uint64_t read_u64(const char *bytes)
{
    uint64_t bits;
    memcpy(&bits, bytes, sizeof(bits));
    return be64toh(bits);
}

bool lh_pg_is_null(const PGresult *result, int row, int column)
{
    return column < 0 || PQgetisnull(result, row, column);
}

bool lh_pg_bool(const PGresult *result, int row, int column)
{
    const char *bytes = value_of(result, row, column, 1);
    return bytes != NULL && *bytes != 0;
}

int32_t lh_pg_int4(const PGresult *result, int row, int column)
{
    const char *bytes = value_of(result, row, column, 4);
    return bytes == NULL ? 0 : (int32_t)read_u32(bytes);
}

int64_t lh_pg_int8(const PGresult *result, int row, int column)
{
    const char *bytes = value_of(result, row, column, 8);
    return bytes == NULL ? 0 : (int64_t)read_u64(bytes);
}

int64_t lh_pg_timestamptz(const PGresult *result, int row, int column)
{
    const char *bytes = value_of(result, row, column, 8);
    int64_t pg_us;

    if (bytes == NULL)
        return 0;
    pg_us = (int64_t)read_u64(bytes);
    if (pg_us == INT64_MAX || pg_us == INT64_MIN)
        return pg_us;
    return pg_us + LH_PG_EPOCH_US;
}

const char *lh_pg_text(const PGresult *result, int row, int column)
{
    return lh_pg_is_null(result, row, column) ? NULL : PQgetvalue(result, row, column);
}

struct lh_uuid lh_pg_uuid(const PGresult *result, int row, int column)
{
    struct lh_uuid uuid = {{0}};
    const char *bytes = value_of(result, row, column, (int)sizeof(uuid.bytes));
    if (bytes != NULL)
        memcpy(uuid.bytes, bytes, sizeof(uuid.bytes));
    return uuid;
}

int32_t lh_pg_int4_array(const PGresult *result, int row, int column, struct lh_arena *arena, const int32_t **elements)
{
    const char *bytes;
    int32_t *copy;
    uint32_t count;

    *elements = NULL;
    if (lh_pg_is_null(result, row, column) || PQgetlength(result, row, column) < 20)
        return 0;
    bytes = PQgetvalue(result, row, column);
    count = read_u32(bytes + 12);
    /* One dimension of elements that are all there: each has a length of 4 before it. */
    if (read_u32(bytes) != 1 || (uint64_t)PQgetlength(result, row, column) != 20 + (uint64_t)count * 8)
        return 0;
    copy = lh_arena_alloc(arena, count * sizeof(*copy));
    for (uint32_t i = 0; i < count; i++)
        copy[i] = (int32_t)read_u32(bytes + 24 + (size_t)i * 8);
    *elements = copy;
    return (int32_t)count;
}

size_t lh_pg_text_array(const PGresult *result, int row, int column, struct lh_arena *arena, const char **elements,
                        size_t max)
{
    const char *bytes, *end;
    size_t count, i;

    if (lh_pg_is_null(result, row, column) || PQgetlength(result, row, column) < 20)
        return 0;
    bytes = PQgetvalue(result, row, column);
    end = bytes + PQgetlength(result, row, column);
    if (read_u32(bytes) != 1)
        return 0;
    count = read_u32(bytes + 12);
    bytes += 20;
    for (i = 0; i < count && i < max && end - bytes >= 4; i++) {
        int32_t size = (int32_t)read_u32(bytes);
        bytes += 4;
        elements[i] = NULL;
        if (size < 0)
            continue;
        if (size > end - bytes)
            break;
        char *copy = lh_arena_alloc(arena, (size_t)size + 1);
        memcpy(copy, bytes, (size_t)size);
        copy[size] = '\0';
        elements[i] = copy;
        bytes += size;
    }
    return i;
}

#define ATTRIBUTES_MAX 64

/* The number of attributes; for each its type, its length or -1, its bytes. */
static void composite_read(PGresult *rows, int row, const char *bytes, const char *end, int count)
{
    uint32_t there = end - bytes < 4 ? 0 : read_u32(bytes);

    PQsetvalue(rows, row, 0, NULL, -1); /* a row of nulls */
    bytes += 4;
    for (uint32_t i = 0; i < there && i < (uint32_t)count && end - bytes >= 8; i++) {
        int32_t size = (int32_t)read_u32(bytes + 4);
        bytes += 8;
        if (size > end - bytes)
            return;
        if (size >= 0) {
            PQsetvalue(rows, row, (int)i, (char *)(uintptr_t)bytes, size);
            bytes += size;
        }
    }
}

PGresult *lh_pg_composites(const PGresult *result, int column, const char *const *names, int count)
{
    PGresult *rows = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    PGresAttDesc attributes[ATTRIBUTES_MAX] = {0};

    assert(count <= ATTRIBUTES_MAX);
    for (int i = 0; i < count; i++) {
        attributes[i].name = (char *)(uintptr_t)names[i]; /* copied */
        attributes[i].format = 1;
    }
    if (!PQsetResultAttrs(rows, count, attributes)) {
        PQclear(rows);
        return NULL;
    }
    for (int row = 0; row < PQntuples(result); row++) {
        const char *bytes = PQgetvalue(result, row, column);
        composite_read(rows, row, bytes, bytes + PQgetlength(result, row, column), count);
    }
    return rows;
}

static const char *cell_of(const PGresult *result, int row, int column, struct lh_arena *arena)
{
    char text[24];
    int64_t number;

    if (lh_pg_is_null(result, row, column))
        return NULL;
    if (PQfformat(result, column) == 0)
        return lh_arena_strdup(arena, PQgetvalue(result, row, column));
    switch (PQftype(result, column)) {
    case LH_PG_BOOL:
        return lh_pg_bool(result, row, column) ? "true" : "false";
    case LH_PG_INT4:
        number = lh_pg_int4(result, row, column);
        break;
    case LH_PG_INT8:
        number = lh_pg_int8(result, row, column);
        break;
    case LH_PG_TIMESTAMPTZ:
        number = lh_pg_timestamptz(result, row, column);
        if (number == INT64_MIN || number == INT64_MAX)
            return NULL;
        break;
    default:
        return lh_arena_strdup(arena, lh_pg_text(result, row, column));
    }
    snprintf(text, sizeof(text), "%lld", (long long)number);
    return lh_arena_strdup(arena, text);
}

struct lh_rows lh_pg_rows(const PGresult *result, int32_t page_size, struct lh_arena *arena)
{
    int count = PQntuples(result), columns = PQnfields(result);
    struct lh_rows rows = {.column_count = (size_t)columns, .has_more = page_size > 0 && count > page_size};
    const char **names = lh_arena_alloc(arena, (rows.column_count + 1) * sizeof(*names)), **cells;

    rows.row_count = (size_t)(rows.has_more ? page_size : count);
    cells = lh_arena_alloc(arena, (rows.row_count * rows.column_count + 1) * sizeof(*cells));
    for (int column = 0; column < columns; column++)
        names[column] = lh_arena_strdup(arena, PQfname(result, column));
    for (size_t i = 0; i < rows.row_count * rows.column_count; i++)
        cells[i] = cell_of(result, (int)(i / rows.column_count), (int)(i % rows.column_count), arena);
    rows.columns = names;
    rows.cells = cells;
    return rows;
}
