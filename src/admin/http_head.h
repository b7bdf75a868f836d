/*
 * The head of an HTTP/1.1 request: its line and its headers (RFC 9112, sections 3 and 5), found in place.
 *
 *     code = lh_http_head_parse(bytes, &head);      0, or the status to refuse it with
 *     lh_http_head_find(&head, "host")
 */
#ifndef LH_ADMIN_HTTP_HEAD_H
#define LH_ADMIN_HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>

#define LH_HTTP_HEADERS_MAX 64

struct lh_http_head {
    const char *method;
    const char *path;  /* as it came, without the query */
    const char *query; /* behind the "?", as it came; "" for none */
    size_t content_length;
    size_t count;
    struct {
        const char *name; /* in lower case */
        const char *value;
    } headers[LH_HTTP_HEADERS_MAX];
};

/* Returns the end of the head in `text`, behind its empty line; NULL: it does not end there. */
char *lh_http_head_end(char *text);

/*
 * `text` ends in NUL, without the empty line; it is cut into strings, which `head` borrows. Refused are what is no
 * request, a header that is there twice and may not be, and a body whose size is not told by Content-Length.
 */
int lh_http_head_parse(char *text, struct lh_http_head *head);

/* The value of a header; NULL: there is none. */
const char *lh_http_head_find(const struct lh_http_head *head, const char *name);

#endif
