/* The page's files, compiled in. */
#include "console/page.h"

#include <string.h>

#include "console/answer.h"

static const struct console_file *find(const char *path)
{
    const char *name = strcmp(path, "/") == 0 ? "/index.html" : path;

    for (size_t i = 0; lh_console_files[i].name != NULL; i++)
        if (strcmp(lh_console_files[i].name, name + 1) == 0)
            return &lh_console_files[i];
    return NULL;
}

bool lh_console_serve_file(struct lh_http_request *request)
{
    const struct console_file *file = find(request->head.path);
    const char *seen = lh_http_head_find(&request->head, "if-none-match");
    bool is_same;

    if (file == NULL)
        return false;
    is_same = seen != NULL && strstr(seen, file->tag) != NULL;
    lh_console_add_headers(request);
    lh_http_add_header(request, "Cache-Control", "no-cache");
    lh_http_add_header(request, "ETag", file->tag);
    lh_http_answer(request, is_same ? 304 : 200, file->type, file->bytes, is_same ? 0 : file->size);
    return true;
}
