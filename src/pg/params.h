/*
 * Parameters of a prepared statement in PostgreSQL's binary format, scalars and one-dimensional arrays, written into
 * one buffer that is used again and again. Strings are copied when they are added.
 *
 *     lh_pg_params_reset(&params);
 *     lh_pg_add_uuid(&params, &id);
 *     lh_pg_array_begin(&params, LH_PG_TEXT);
 *     for (...) lh_pg_array_add_text(&params, name);
 *     lh_pg_array_end(&params);
 *
 * The formats are those of the types' receive functions (src/backend/utils/adt of PostgreSQL): big-endian integers,
 * timestamps in microseconds since 2000-01-01, an array as dimensions, a null flag, element type, bounds, elements.
 */
#ifndef LH_PG_PARAMS_H
#define LH_PG_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "base/uuid.h"

#define LH_PG_PARAMS_MAX 19

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
    size_t array_at; /* offset of the open array's header */
    uint32_t array_elements;
    bool array_has_null;
};

void lh_pg_params_reset(struct lh_pg_params *params);
void lh_pg_params_finish(struct lh_pg_params *params);

void lh_pg_add_null(struct lh_pg_params *params);
void lh_pg_add_bool(struct lh_pg_params *params, bool value);
void lh_pg_add_int4(struct lh_pg_params *params, int32_t value);
void lh_pg_add_int8(struct lh_pg_params *params, int64_t value);
void lh_pg_add_text(struct lh_pg_params *params, const char *value); /* null for NULL */
void lh_pg_add_uuid(struct lh_pg_params *params, const struct lh_uuid *value);
void lh_pg_add_timestamptz(struct lh_pg_params *params, int64_t unix_us);

/* Begins an array of a scalar type. Add each element by the function of that type, or as null. */
void lh_pg_array_begin(struct lh_pg_params *params, uint32_t element_type);
void lh_pg_array_add_null(struct lh_pg_params *params);
void lh_pg_array_add_bool(struct lh_pg_params *params, bool value);
void lh_pg_array_add_int4(struct lh_pg_params *params, int32_t value);
void lh_pg_array_add_int8(struct lh_pg_params *params, int64_t value);
void lh_pg_array_add_text(struct lh_pg_params *params, const char *value); /* null for NULL */
void lh_pg_array_add_uuid(struct lh_pg_params *params, const struct lh_uuid *value);
void lh_pg_array_end(struct lh_pg_params *params);

/* Adds a whole array: the last argument is the statement that adds element i. */
#define LH_PG_ARRAY(params, type, n, ...)                                                                              \
    do {                                                                                                               \
        lh_pg_array_begin(params, type);                                                                               \
        for (size_t i = 0; i < (n); i++)                                                                               \
            __VA_ARGS__;                                                                                               \
        lh_pg_array_end(params);                                                                                       \
    } while (0)

#endif
