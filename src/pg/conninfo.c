#include "pg/conninfo.h"

#include <libpq-fe.h>
#include <stdio.h>
#include <string.h>

/* libpq 15, "Parameter Key Words". A daemon writes, so it asks for no server that only reads. */
static const struct {
    const char *name;
    const char *words; /* with | between them; NULL: a whole number, or several with commas */
} values[] = {
    {"target_session_attrs", "any|read-write|primary"},
    {"sslmode", "disable|allow|prefer|require|verify-ca|verify-full"},
    {"channel_binding", "disable|prefer|require"},
    {"gssencmode", "disable|prefer|require"},
    {"ssl_min_protocol_version", "TLSv1|TLSv1.1|TLSv1.2|TLSv1.3"},
    {"ssl_max_protocol_version", "TLSv1|TLSv1.1|TLSv1.2|TLSv1.3"},
    {"sslsni", "0|1"},
    {"keepalives", "0|1"},
    {"port", NULL},
    {"connect_timeout", NULL},
    {"keepalives_idle", NULL},
    {"keepalives_interval", NULL},
    {"keepalives_count", NULL},
    {"tcp_user_timeout", NULL},
};

static bool is_word(const char *text, const char *words)
{
    for (;; words++) {
        size_t size = strcspn(words, "|");
        if (strlen(text) == size && memcmp(text, words, size) == 0)
            return true;
        words += size;
        if (*words == '\0')
            return false;
    }
}

static bool check_value(const PQconninfoOption *option, char *why, size_t why_bytes)
{
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        if (option->val == NULL || option->val[0] == '\0' || strcmp(option->keyword, values[i].name) != 0)
            continue;
        if (values[i].words != NULL ? is_word(option->val, values[i].words)
                                    : option->val[strspn(option->val, "0123456789, -")] == '\0')
            return true;
        snprintf(why, why_bytes, "%s = %s: expected %s", option->keyword, option->val,
                 values[i].words != NULL ? values[i].words : "a whole number");
        return false;
    }
    return true;
}

/* libpq's own words, where they name an option: others may quote what is a password's second half. */
static void describe_refusal(const char *conninfo, const char *words, char *why, size_t why_bytes)
{
    static const char *const known[] = {"invalid connection option", "invalid URI query parameter"};
    const char *scheme = strstr(conninfo, "://");

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (words != NULL && strncmp(words, known[i], strlen(known[i])) == 0) {
            snprintf(why, why_bytes, "%.*s", (int)strcspn(words, "\n"), words);
            return;
        }
    }
    if (scheme != NULL && memchr(conninfo, '=', (size_t)(scheme - conninfo)) == NULL &&
        strncmp(conninfo, "postgresql://", 13) != 0 && strncmp(conninfo, "postgres://", 11) != 0)
        snprintf(why, why_bytes, "a URL of PostgreSQL begins with postgresql://");
    else
        snprintf(why, why_bytes,
                 "expected postgresql://USER@HOST:PORT/NAME or host=... dbname=...; a value with blanks "
                 "stands in quotes");
}

bool lh_pg_conninfo_check(const char *conninfo, char *why, size_t why_bytes)
{
    char *words = NULL;
    PQconninfoOption *options = PQconninfoParse(conninfo, &words);
    bool is_good = options != NULL;

    if (!is_good)
        describe_refusal(conninfo, words, why, why_bytes);
    for (const PQconninfoOption *option = options; is_good && option->keyword != NULL; option++)
        is_good = check_value(option, why, why_bytes);
    PQconninfoFree(options);
    PQfreemem(words);
    return is_good;
}
