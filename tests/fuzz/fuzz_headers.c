/*
 * Headers of a request on their way to a call: cut into pieces they come out as if they had come whole, what is not too
 * long comes out unchanged, and whatever HPACK makes of them is checked.
 */
#include <nghttp2/nghttp2.h>
#include <string.h>

#include "fuzz.h"
#include "rpc/headers.h"

#define STAND_IN_BYTES 5000

static struct rpc_header_block pass(const uint8_t *bytes, size_t size, size_t step)
{
    struct rpc_header_block block = {0};

    lh_rpc_header_block_begin(&block, STAND_IN_BYTES);
    for (size_t at = 0; at < size; at += step)
        lh_rpc_header_block_pass(&block, bytes + at, size - at < step ? size - at : step);
    return block;
}

/* How nghttp2 reads it: 0 is well, and then the fields have been through the checks. */
static int inflate(const uint8_t *bytes, size_t size, size_t *fields)
{
    nghttp2_hd_inflater *inflater;
    struct rpc_header_check check = {0};
    int flags = 0;
    ssize_t used = 0;

    FUZZ_CHECK(nghttp2_hd_inflate_new(&inflater) == 0);
    *fields = 0;
    do {
        nghttp2_nv field;
        used = nghttp2_hd_inflate_hd2(inflater, &field, &flags, bytes, size, 1);
        if (used < 0)
            break;
        if (used > 0)
            bytes += used;
        size -= (size_t)used;
        if (flags & NGHTTP2_HD_INFLATE_EMIT) {
            (*fields)++;
            lh_rpc_header_check_field(&check, (const char *)field.name, field.namelen, (const char *)field.value,
                                      field.valuelen);
        }
    } while ((flags & NGHTTP2_HD_INFLATE_FINAL) == 0 && (size > 0 || (flags & NGHTTP2_HD_INFLATE_EMIT)));
    lh_rpc_header_check_block(&check, true);
    lh_rpc_header_check_data(&check, size);
    lh_rpc_header_check_end(&check);
    nghttp2_hd_inflate_del(inflater);
    return used < 0 ? (int)used : 0;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    fuzz_quiet();
    return 0;
}

/* The first byte: how large the pieces are. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    size_t step = 1 + (size_t)fuzz_byte(&input), fields, fields_out;
    struct rpc_header_block whole = pass(input.at, input.left, input.left + 1);
    struct rpc_header_block cut = pass(input.at, input.left, step);
    bool is_cut = whole.out.size > input.left;

    FUZZ_CHECK(whole.out.size == cut.out.size);
    FUZZ_CHECK(whole.out.size == 0 || memcmp(whole.out.data, cut.out.data, cut.out.size) == 0);
    if (!is_cut && inflate(input.at, input.left, &fields) == 0 && whole.state == BLOCK_FIELD) {
        FUZZ_CHECK(whole.out.size == input.left);
        FUZZ_CHECK(inflate(whole.out.data, whole.out.size, &fields_out) == 0 && fields == fields_out);
    } else {
        inflate(whole.out.data, whole.out.size, &fields_out);
    }
    lh_rpc_header_block_finish(&whole);
    lh_rpc_header_block_finish(&cut);
    return 0;
}
