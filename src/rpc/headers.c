#include "rpc/headers.h"

#include <nghttp2/nghttp2.h>
#include <string.h>
#include <strings.h>

#define HUFFMAN 0x80
#define INTEGER_MAX_SHIFT 56

void lh_rpc_header_block_begin(struct rpc_header_block *block, size_t stand_in_bytes)
{
    struct lh_buffer out = block->out;

    memset(block, 0, sizeof(*block));
    block->out = out;
    block->out.size = 0;
    block->stand_in_bytes = stand_in_bytes;
}

void lh_rpc_header_block_finish(struct rpc_header_block *block)
{
    lh_buffer_finish(&block->out);
}

static void put_stand_in(struct rpc_header_block *block)
{
    size_t rest = block->stand_in_bytes - 0x7f;
    uint8_t length[12] = {0x7f};
    size_t used = 1;

    for (; rest >= 0x80; rest >>= 7)
        length[used++] = (uint8_t)(0x80 | (rest & 0x7f));
    length[used++] = (uint8_t)rest;
    lh_buffer_append(&block->out, length, used);
    memset(lh_buffer_reserve(&block->out, block->stand_in_bytes), 'x', block->stand_in_bytes);
    block->out.size += block->stand_in_bytes;
}

/* The bits of a first byte that belong to the integer. False: the integer goes on. */
static bool begin_integer(struct rpc_header_block *block, uint8_t byte, uint8_t mask)
{
    block->number = byte & mask;
    block->shift = 0;
    return block->number < mask;
}

/* True: that was its last byte. */
static bool read_integer(struct rpc_header_block *block, uint8_t byte)
{
    if (block->shift > INTEGER_MAX_SHIFT) {
        block->state = BLOCK_BROKEN; /* nghttp2 will say so */
        return false;
    }
    block->number += (uint64_t)(byte & 0x7f) << block->shift;
    block->shift += 7;
    return (byte & 0x80) == 0;
}

static void on_index(struct rpc_header_block *block, bool has_value)
{
    block->strings = !has_value ? 0 : block->number == 0 ? 2 : 1;
    block->state = block->strings == 0 ? BLOCK_FIELD : BLOCK_LENGTH;
    block->held_size = 0;
}

static void on_string_end(struct rpc_header_block *block)
{
    block->strings--;
    block->held_size = 0;
    block->state = block->strings == 0 ? BLOCK_FIELD : BLOCK_LENGTH;
}

static void on_length(struct rpc_header_block *block)
{
    block->left = block->number;
    block->is_cut = block->left > RPC_HEADER_STRING_MAX_BYTES;
    if (block->is_cut)
        put_stand_in(block);
    else
        lh_buffer_append(&block->out, block->held, block->held_size);
    block->state = BLOCK_STRING;
    if (block->left == 0)
        on_string_end(block);
}

/* Indexed fields and changes of the table's size have no strings; the others have a value, and a name unless it is in
   a table. */
static void read_field(struct rpc_header_block *block, uint8_t byte)
{
    bool is_indexed = (byte & 0x80) != 0, is_resize = (byte & 0xe0) == 0x20;
    uint8_t mask = is_indexed ? 0x7f : (byte & 0x40) != 0 ? 0x3f : is_resize ? 0x1f : 0x0f;
    bool has_value = !is_indexed && !is_resize;

    lh_buffer_append(&block->out, &byte, 1);
    block->strings = has_value;
    if (begin_integer(block, byte, mask))
        on_index(block, has_value);
    else
        block->state = BLOCK_INDEX;
}

static void read_length(struct rpc_header_block *block, uint8_t byte)
{
    bool is_done;

    block->held[block->held_size++] = byte;
    if (block->held_size == 1)
        is_done = begin_integer(block, byte, HUFFMAN - 1);
    else
        is_done = read_integer(block, byte);
    if (block->state == BLOCK_BROKEN)
        lh_buffer_append(&block->out, block->held, block->held_size);
    else if (is_done)
        on_length(block);
}

static size_t read_string(struct rpc_header_block *block, const uint8_t *bytes, size_t size)
{
    size_t step = size < block->left ? size : (size_t)block->left;

    if (!block->is_cut)
        lh_buffer_append(&block->out, bytes, step);
    block->left -= step;
    if (block->left == 0)
        on_string_end(block);
    return step;
}

void lh_rpc_header_block_pass(struct rpc_header_block *block, const uint8_t *bytes, size_t size)
{
    for (size_t at = 0; at < size;) {
        switch (block->state) {
        case BLOCK_FIELD:
            read_field(block, bytes[at++]);
            break;
        case BLOCK_INDEX:
            lh_buffer_append(&block->out, &bytes[at], 1);
            if (read_integer(block, bytes[at++]))
                on_index(block, block->strings > 0);
            break;
        case BLOCK_LENGTH:
            read_length(block, bytes[at++]);
            break;
        case BLOCK_STRING:
            at += read_string(block, bytes + at, size - at);
            break;
        case BLOCK_BROKEN:
            lh_buffer_append(&block->out, bytes + at, size - at);
            return;
        }
    }
}

/* --- the rules --- */

enum { PSEUDO_METHOD = 1, PSEUDO_SCHEME = 2, PSEUDO_PATH = 4, PSEUDO_AUTHORITY = 8 };
#define PSEUDO_WANTED (PSEUDO_METHOD | PSEUDO_SCHEME | PSEUDO_PATH)

/* Those of HTTP/1.1's connection. */
static bool is_forbidden(const char *name, size_t size, const char *value, size_t value_size)
{
    switch (size == 0 ? '\0' : name[0]) {
    case 'c':
        return lh_rpc_is_name(name, size, "connection");
    case 'k':
        return lh_rpc_is_name(name, size, "keep-alive");
    case 'p':
        return lh_rpc_is_name(name, size, "proxy-connection");
    case 't':
        if (lh_rpc_is_name(name, size, "te"))
            return value_size != strlen("trailers") || strncasecmp(value, "trailers", value_size) != 0;
        return lh_rpc_is_name(name, size, "transfer-encoding");
    case 'u':
        return lh_rpc_is_name(name, size, "upgrade");
    default:
        return false;
    }
}

static bool is_length(struct rpc_header_check *check, const char *value, size_t size)
{
    uint64_t length = 0;

    if (check->has_length || size == 0 || size > 18)
        return false;
    for (size_t i = 0; i < size; i++) {
        if (value[i] < '0' || value[i] > '9')
            return false;
        length = length * 10 + (uint64_t)(value[i] - '0');
    }
    check->has_length = true;
    check->length = length;
    return true;
}

static bool is_credential(struct rpc_header_check *check, const char *value, size_t size)
{
    bool is_first = !check->has_credentials;

    check->has_credentials = true;
    return is_first && nghttp2_check_header_value_rfc9113((const uint8_t *)value, size);
}

/* A path of a unix socket is an authority too: any of it will do. */
static bool is_pseudo(struct rpc_header_check *check, const char *name, size_t size, const char *value,
                      size_t value_size)
{
    const uint8_t *text = (const uint8_t *)value;
    uint8_t which;
    bool is_good;

    if (lh_rpc_is_name(name, size, ":path")) {
        which = PSEUDO_PATH;
        is_good = value_size > 0 && (value[0] == '/' || (value_size == 1 && value[0] == '*')) &&
                  nghttp2_check_path(text, value_size);
    } else if (lh_rpc_is_name(name, size, ":method")) {
        which = PSEUDO_METHOD;
        is_good = nghttp2_check_method(text, value_size);
    } else if (lh_rpc_is_name(name, size, ":scheme")) {
        which = PSEUDO_SCHEME;
        is_good = nghttp2_check_method(text, value_size); /* a token, like that one */
    } else if (lh_rpc_is_name(name, size, ":authority")) {
        which = PSEUDO_AUTHORITY;
        is_good = nghttp2_check_header_value_rfc9113(text, value_size);
    } else {
        return false;
    }
    is_good = is_good && (check->seen & which) == 0 && !check->has_fields && !check->is_trailer;
    check->seen |= which;
    return is_good;
}

static bool has_upper_case(const char *name, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (name[i] >= 'A' && name[i] <= 'Z')
            return true;
    return false;
}

bool lh_rpc_header_check_field(struct rpc_header_check *check, const char *name, size_t name_size, const char *value,
                               size_t value_size)
{
    if (check->is_malformed)
        return false;
    if (name_size > 0 && name[0] == ':') {
        check->is_malformed = !is_pseudo(check, name, name_size, value, value_size);
        return !check->is_malformed;
    }
    check->has_fields = true;
    if (!nghttp2_check_header_name((const uint8_t *)name, name_size)) {
        check->is_malformed = has_upper_case(name, name_size);
        return false;
    }
    check->is_malformed =
        is_forbidden(name, name_size, value, value_size) ||
        (lh_rpc_is_name(name, name_size, "content-length") && !is_length(check, value, value_size)) ||
        (lh_rpc_is_name(name, name_size, "authorization") && !is_credential(check, value, value_size));
    return !check->is_malformed && nghttp2_check_header_value_rfc9113((const uint8_t *)value, value_size);
}

bool lh_rpc_header_check_block(struct rpc_header_check *check, bool is_end)
{
    if (check->is_trailer ? !is_end : (check->seen & PSEUDO_WANTED) != PSEUDO_WANTED)
        check->is_malformed = true;
    check->is_trailer = true; /* what may still come */
    return !check->is_malformed;
}

void lh_rpc_header_check_data(struct rpc_header_check *check, size_t size)
{
    check->received += size;
}

bool lh_rpc_header_check_end(const struct rpc_header_check *check)
{
    return !check->has_length || check->received == check->length;
}
