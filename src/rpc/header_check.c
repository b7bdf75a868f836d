#include "rpc/header_check.h"

#include <nghttp2/nghttp2.h>
#include <string.h>
#include <strings.h>

enum { PSEUDO_METHOD = 1, PSEUDO_SCHEME = 2, PSEUDO_PATH = 4, PSEUDO_AUTHORITY = 8 };
#define PSEUDO_WANTED (PSEUDO_METHOD | PSEUDO_SCHEME | PSEUDO_PATH)

static bool is_name(const char *name, size_t size, const char *wanted)
{
    return size == strlen(wanted) && memcmp(name, wanted, size) == 0;
}

/* Those of HTTP/1.1's connection. */
static bool is_forbidden(const char *name, size_t size, const char *value, size_t value_size)
{
    switch (size == 0 ? '\0' : name[0]) {
    case 'c':
        return is_name(name, size, "connection");
    case 'k':
        return is_name(name, size, "keep-alive");
    case 'p':
        return is_name(name, size, "proxy-connection");
    case 't':
        if (is_name(name, size, "te"))
            return value_size != strlen("trailers") || strncasecmp(value, "trailers", value_size) != 0;
        return is_name(name, size, "transfer-encoding");
    case 'u':
        return is_name(name, size, "upgrade");
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

    if (is_name(name, size, ":path")) {
        which = PSEUDO_PATH;
        is_good = value_size > 0 && (value[0] == '/' || (value_size == 1 && value[0] == '*')) &&
                  nghttp2_check_path(text, value_size);
    } else if (is_name(name, size, ":method")) {
        which = PSEUDO_METHOD;
        is_good = nghttp2_check_method(text, value_size);
    } else if (is_name(name, size, ":scheme")) {
        which = PSEUDO_SCHEME;
        is_good = nghttp2_check_method(text, value_size); /* a token, like that one */
    } else if (is_name(name, size, ":authority")) {
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
    check->is_malformed = is_forbidden(name, name_size, value, value_size) ||
                          (is_name(name, name_size, "content-length") && !is_length(check, value, value_size)) ||
                          (is_name(name, name_size, "authorization") && !is_credential(check, value, value_size));
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
