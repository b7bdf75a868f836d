/*
 * Typed readers for a binary result. Columns are looked up by name once, for all rows:
 *
 *     lh_pg_result_columns(result, names, columns, 3)      -1 for a column that is not there
 *     token = lh_pg_int8(result, row, columns[0]);
 *
 * A NULL, or a column of another width, reads as 0, false, NULL. Text is inside the result, ends in NUL and lives as
 * long as it does.
 */
#ifndef LH_PG_RESULT_H
#define LH_PG_RESULT_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/uuid.h"

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
struct lh_arena;
int32_t lh_pg_int4_array(const PGresult *result, int row, int column, struct lh_arena *arena, const int32_t **elements);

/* Copies at most `max` elements of a text[] to `arena`, ending in NUL, NULL for null. Returns their number. */
size_t lh_pg_text_array(const PGresult *result, int row, int column, struct lh_arena *arena, const char **elements,
                        size_t max);

/* Returns a column of a composite type as a result of its own: a row for each row of `result` (of nulls for a null)
   and a column for each of the type's first `count` attributes, called `names`. PQclear() it. NULL without memory;
   the readers above read that as nulls. */
PGresult *lh_pg_composites(const PGresult *result, int column, const char *const *names, int count);

#endif
