#include "admin/http_head.h"

#include <ctype.h>
#include <string.h>

/* A line may end without the carriage return (RFC 9112, section 2.2). */
char *lh_http_head_end(char *text)
{
    char *end = strstr(text, "\n\r\n"), *bare = strstr(text, "\n\n");

    if (bare != NULL && (end == NULL || bare < end))
        return bare + 2;
    return end == NULL ? NULL : end + 3;
}

/* Cuts it off and returns what is behind it; NULL: there is no further line. */
static char *cut_line(char *line)
{
    char *end = strchr(line, '\n');

    if (end == NULL) {
        line[strcspn(line, "\r")] = '\0';
        return NULL;
    }
    *end = '\0';
    if (end > line && end[-1] == '\r')
        end[-1] = '\0';
    return end + 1;
}

/* "GET /metrics?x HTTP/1.1" */
static bool parse_line(char *line, struct lh_http_head *head)
{
    char *target = strchr(line, ' ');
    char *version = target == NULL ? NULL : strchr(target + 1, ' ');
    char *query;

    if (version == NULL || strncmp(version, " HTTP/1.", 8) != 0 || target[1] != '/')
        return false;
    *target++ = '\0';
    *version = '\0';
    target[strcspn(target, "#")] = '\0';
    query = strchr(target, '?');
    if (query != NULL)
        *query++ = '\0';
    head->method = line;
    head->path = target;
    head->query = query != NULL ? query : "";
    return true;
}

/* RFC 9110, section 5.6.2 */
static bool is_token(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (!isalnum((unsigned char)text[i]) && strchr("!#$%&'*+-.^_`|~", text[i]) == NULL)
            return false;
    return size > 0;
}

static bool may_repeat(const char *name)
{
    static const char *const single[] = {"authorization", "content-length",    "content-type",  "cookie",      "host",
                                         "origin",        "transfer-encoding", "if-none-match", "x-csrf-token"};

    for (size_t i = 0; i < sizeof(single) / sizeof(single[0]); i++)
        if (strcmp(name, single[i]) == 0)
            return false;
    return true;
}

static int add_header(char *line, struct lh_http_head *head)
{
    size_t size = strcspn(line, ":");
    char *value = line + size;

    if (*value != ':' || !is_token(line, size))
        return 400;
    if (head->count == LH_HTTP_HEADERS_MAX)
        return 431;
    *value++ = '\0';
    for (char *c = line; *c != '\0'; c++)
        *c = (char)tolower((unsigned char)*c);
    value += strspn(value, " \t");
    for (size_t end = strlen(value); end > 0 && strchr(" \t", value[end - 1]) != NULL; end--)
        value[end - 1] = '\0';
    if (!may_repeat(line) && lh_http_head_find(head, line) != NULL)
        return 400;
    head->headers[head->count].name = line;
    head->headers[head->count++].value = value;
    return 0;
}

static int read_length(struct lh_http_head *head)
{
    const char *text = lh_http_head_find(head, "content-length");

    if (lh_http_head_find(head, "transfer-encoding") != NULL)
        return 411;
    if (text == NULL)
        return 0;
    if (*text == '\0' || strlen(text) > 18 || strspn(text, "0123456789") != strlen(text))
        return 400;
    for (; *text != '\0'; text++)
        head->content_length = head->content_length * 10 + (size_t)(*text - '0');
    return 0;
}

int lh_http_head_parse(char *text, struct lh_http_head *head)
{
    char *next = cut_line(text);

    memset(head, 0, sizeof(*head));
    if (!parse_line(text, head))
        return 400;
    while (next != NULL && *next != '\0') {
        char *line = next;
        int code;
        next = cut_line(line);
        if (*line == '\0')
            break;
        code = add_header(line, head);
        if (code != 0)
            return code;
    }
    return read_length(head);
}

const char *lh_http_head_find(const struct lh_http_head *head, const char *name)
{
    for (size_t i = 0; i < head->count; i++)
        if (strcmp(head->headers[i].name, name) == 0)
            return head->headers[i].value;
    return NULL;
}
