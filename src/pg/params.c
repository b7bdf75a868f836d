#include "pg/params.h"

#include <assert.h>
#include <endian.h>
#include <limits.h>
#include <string.h>

/* Dimensions, null flag, element type; then length and lower bound of the one dimension. */
#define ARRAY_EMPTY_HEADER_BYTES 12

void lh_pg_params_reset(struct lh_pg_params *params)
{
    params->count = 0;
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

static void put_u64(struct lh_buffer *bytes, uint64_t value)
{
    value = htobe64(value);
    lh_buffer_append(bytes, &value, sizeof(value));
}

static void add(struct lh_pg_params *params, const void *data, size_t size)
{
    assert(params->count < LH_PG_PARAMS_MAX && size <= INT_MAX);
    params->values[params->count].offset = params->bytes.size;
    params->values[params->count].length = (int)size;
    params->count++;
    lh_buffer_append(&params->bytes, data, size);
}

void lh_pg_add_null(struct lh_pg_params *params)
{
    add(params, NULL, 0);
    params->values[params->count - 1].length = -1;
}

void lh_pg_add_bool(struct lh_pg_params *params, bool value)
{
    unsigned char byte = value;
    add(params, &byte, 1);
}

void lh_pg_add_int4(struct lh_pg_params *params, int32_t value)
{
    uint32_t bits = htobe32((uint32_t)value);
    add(params, &bits, sizeof(bits));
}

void lh_pg_add_int8(struct lh_pg_params *params, int64_t value)
{
    uint64_t bits = htobe64((uint64_t)value);
    add(params, &bits, sizeof(bits));
}

void lh_pg_add_text(struct lh_pg_params *params, const char *value)
{
    if (value == NULL)
        lh_pg_add_null(params);
    else
        add(params, value, strlen(value));
}

void lh_pg_add_uuid(struct lh_pg_params *params, const struct lh_uuid *value)
{
    add(params, value->bytes, sizeof(value->bytes));
}

void lh_pg_add_timestamptz(struct lh_pg_params *params, int64_t unix_us)
{
    lh_pg_add_int8(params, unix_us - LH_PG_EPOCH_US);
}

void lh_pg_array_begin(struct lh_pg_params *params, uint32_t element_type)
{
    add(params, NULL, 0);
    params->array_at = params->bytes.size;
    params->array_elements = 0;
    params->array_has_null = false;
    put_u32(&params->bytes, 1);
    put_u32(&params->bytes, 0); /* the null flag: lh_pg_array_end knows */
    put_u32(&params->bytes, element_type);
    put_u32(&params->bytes, 0); /* the length: lh_pg_array_end knows */
    put_u32(&params->bytes, 1);
}

static void add_element(struct lh_pg_params *params, const void *data, size_t size)
{
    assert(size <= INT_MAX);
    params->array_elements++;
    put_u32(&params->bytes, (uint32_t)size);
    lh_buffer_append(&params->bytes, data, size);
}

void lh_pg_array_add_null(struct lh_pg_params *params)
{
    params->array_elements++;
    params->array_has_null = true;
    put_u32(&params->bytes, UINT32_MAX);
}

void lh_pg_array_add_bool(struct lh_pg_params *params, bool value)
{
    unsigned char byte = value;
    add_element(params, &byte, 1);
}

void lh_pg_array_add_int4(struct lh_pg_params *params, int32_t value)
{
    params->array_elements++;
    put_u32(&params->bytes, 4);
    put_u32(&params->bytes, (uint32_t)value);
}

void lh_pg_array_add_int8(struct lh_pg_params *params, int64_t value)
{
    params->array_elements++;
    put_u32(&params->bytes, 8);
    put_u64(&params->bytes, (uint64_t)value);
}

void lh_pg_array_add_text(struct lh_pg_params *params, const char *value)
{
    if (value == NULL)
        lh_pg_array_add_null(params);
    else
        add_element(params, value, strlen(value));
}

void lh_pg_array_add_uuid(struct lh_pg_params *params, const struct lh_uuid *value)
{
    add_element(params, value->bytes, sizeof(value->bytes));
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
        patch_u32(bytes, at + 4, params->array_has_null);
        patch_u32(bytes, at + ARRAY_EMPTY_HEADER_BYTES, params->array_elements);
    }
    assert(bytes->size - at <= INT_MAX);
    params->values[params->count - 1].length = (int)(bytes->size - at);
}
