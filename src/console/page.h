/* The files of the page, as embed.py writes them. */
#ifndef LH_CONSOLE_PAGE_H
#define LH_CONSOLE_PAGE_H

#include "admin/http.h"

struct console_file {
    const char *name; /* "index.html" */
    const char *type;
    const char *tag; /* an ETag, with its quotes: of the bytes */
    const unsigned char *bytes;
    size_t size;
};

/* NULL for a name ends them. */
extern const struct console_file lh_console_files[];

/* Serves a file. Returns false if there is no such file. */
bool lh_console_serve_file(struct lh_http_request *request);

#endif
