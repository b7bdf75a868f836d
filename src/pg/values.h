/*
 * Values in PostgreSQL's binary format: parameters of a prepared statement, and the columns of a result.
 *
 * Parameters are scalars and one-dimensional arrays, written into one buffer that is used again and again. Strings are
 * copied when they are added.
 *
 *     lh_pg_params_reset(&params);
 *     lh_pg_add_uuid(&params, &id);
 *     lh_pg_array_begin(&params, LH_PG_TEXT);
 *     for (...) lh_pg_add_text(&params, name);
 *     lh_pg_array_end(&params);
 *
 * Readers of a result look its columns up by name once, for all rows. A NULL, or a column of another width, reads as 0,
 * false, NULL. Text is inside the result, ends in NUL and lives as long as it does.
 *
 *     lh_pg_result_columns(result, names, columns, 3)      -1 for a column that is not there
 *     token = lh_pg_int8(result, row, columns[0]);
 *
 * The formats are those of the types' receive functions (src/backend/utils/adt of PostgreSQL): big-endian integers,
 * timestamps in microseconds since 2000-01-01, an array as dimensions, a null flag, element type, bounds, elements.
 */
#ifndef LH_PG_VALUES_H
#define LH_PG_VALUES_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "base/rows.h"
#include "base/uuid.h"

#define LH_PG_PARAMS_MAX 24 /* hand_over_batch has 19 */

/* OIDs of types (src/include/catalog/pg_type.dat); they never change. */
#define LH_PG_BOOL 16u
#define LH_PG_INT8 20u
#define LH_PG_INT4 23u
#define LH_PG_TEXT 25u
#define LH_PG_TIMESTAMPTZ 1184u
#define LH_PG_UUID 2950u
#define LH_PG_BOOL_ARRAY 1000u
#define LH_PG_INT4_ARRAY 1007u
#define LH_PG_TEXT_ARRAY 1009u
#define LH_PG_INT8_ARRAY 1016u
#define LH_PG_TIMESTAMPTZ_ARRAY 1185u
#define LH_PG_UUID_ARRAY 2951u

/* Microseconds from the Unix epoch to PostgreSQL's. */
#define LH_PG_EPOCH_US INT64_C(946684800000000)

/* Zero-initialised it is empty; finish with lh_pg_params_finish. */
struct lh_pg_params {
    int count;
    struct {
        size_t offset;
        int length; /* -1: null */
    } values[LH_PG_PARAMS_MAX];
    struct lh_buffer bytes;
    bool is_in_array;
    size_t array_at; /* offset of the header of the array that was begun last */
    uint32_t array_elements;
    uint32_t array_nulls;
};

void lh_pg_params_reset(struct lh_pg_params *params);
void lh_pg_params_finish(struct lh_pg_params *params);

void lh_pg_add_null(struct lh_pg_params *params);
void lh_pg_add_bool(struct lh_pg_params *params, bool value);
void lh_pg_add_int4(struct lh_pg_params *params, int32_t value);
void lh_pg_add_int8(struct lh_pg_params *params, int64_t value);
void lh_pg_add_int8_unless(struct lh_pg_params *params, int64_t value, int64_t null); /* null for that value */
void lh_pg_add_text(struct lh_pg_params *params, const char *value);                  /* null for NULL */
void lh_pg_add_uuid(struct lh_pg_params *params, const struct lh_uuid *value);
void lh_pg_add_timestamptz(struct lh_pg_params *params, int64_t unix_us);

/* Begins an array of a scalar type: until lh_pg_array_end the functions above add its elements, of that type or null. */
void lh_pg_array_begin(struct lh_pg_params *params, uint32_t element_type);
void lh_pg_array_end(struct lh_pg_params *params);
void lh_pg_array_end_or_null(struct lh_pg_params *params); /* null in place of an array of nulls alone */

/* Adds a whole array: the last argument is the statement that adds element i. */
#define LH_PG_ARRAY(params, type, n, ...)                                                                              \
    do {                                                                                                               \
        lh_pg_array_begin(params, type);                                                                               \
        for (size_t i = 0; i < (n); i++)                                                                               \
            __VA_ARGS__;                                                                                               \
        lh_pg_array_end(params);                                                                                       \
    } while (0)

/* --- results --- */

/* Finds the columns of these names. Returns false if one is missing; the others are found all the same. */
bool lh_pg_result_columns(const PGresult *result, const char *const *names, int *columns, size_t count);

bool lh_pg_is_null(const PGresult *result, int row, int column);
bool lh_pg_bool(const PGresult *result, int row, int column);
int32_t lh_pg_int4(const PGresult *result, int row, int column);
int64_t lh_pg_int8(const PGresult *result, int row, int column);
int64_t lh_pg_timestamptz(const PGresult *result, int row, int column); /* Unix µs; INT64_MAX and INT64_MIN: infinity */
const char *lh_pg_text(const PGresult *result, int row, int column);    /* NULL for null */
struct lh_uuid lh_pg_uuid(const PGresult *result, int row, int column); /* zero for null */

/* Copies the elements of an int4[] to `arena` and returns their number. `elements` is NULL for a null, or an array
   with a null or more than one dimension. */
int32_t lh_pg_int4_array(const PGresult *result, int row, int column, struct lh_arena *arena, const int32_t **elements);

/* Copies at most `max` elements of a text[] to `arena`, ending in NUL, NULL for null. Returns their number. */
size_t lh_pg_text_array(const PGresult *result, int row, int column, struct lh_arena *arena, const char **elements,
                        size_t max);

/* Copies the rows to `arena` as text, at most `page_size` of them if that is not 0: booleans, integers, text and times (infinity
   is null), or any column that came as text. */
struct lh_rows lh_pg_rows(const PGresult *result, int32_t page_size, struct lh_arena *arena);

/* Returns a column of a composite type as a result of its own: a row for each row of `result` (of nulls for a null)
   and a column for each of the type's first `count` attributes, called `names`. PQclear() it. NULL without memory;
   the readers above read that as nulls. */
PGresult *lh_pg_composites(const PGresult *result, int column, const char *const *names, int count);

#endif
