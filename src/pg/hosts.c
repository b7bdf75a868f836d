/*
 * The places that a connection string leads to, one at a time: each host in its list, and each address of a host.
 *
 * libpq's asynchronous connect has no time-out for a host, begins at the first one each time, and looks names up by
 * itself, which blocks. So an attempt here gets one address of one host. When it fails, the caller moves on.
 *
 *     if (lh_pg_hosts_find(hosts, &place))                  else on_found(arg) comes when it is known
 *         pg = lh_pg_hosts_open(hosts, &error, &is_final);  PQconnectStartParams
 *     ...
 *     lh_pg_hosts_leave(hosts, &place);                     the next attempt goes elsewhere
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "loop/loop.h"
#include "pg/conn_internal.h"
#include "pg/error.h"

#define OPTIONS_MAX 96 /* that libpq has: 48 in version 15 */
/* No value of target_session_attrs: libpq reads the whole string, its service file and the environment, and stops. */
#define STOP "read the connection string only"

struct host {
    char *name;    /* NULL: the default socket */
    char *address; /* hostaddr, or NULL */
    char *port;    /* NULL: the default */
    bool is_looked_up;
    char found[LH_PG_ADDRESSES_MAX][LH_PG_ADDRESS_BYTES];
    size_t found_count;
    char words[160]; /* why nothing was found */
};

struct lh_pg_hosts {
    struct lh_loop *loop;
    void (*on_found)(void *arg);
    void *arg;
    struct lh_error broken; /* what is wrong with the string; else its status is LH_OK */
    char *keywords[OPTIONS_MAX];
    char *values[OPTIONS_MAX];
    size_t option_count; /* what all attempts have in common */
    int64_t connect_timeout_us;
    struct host *hosts;
    size_t count;
    struct lh_pg_place next;
    struct lh_pg_lookup *lookup;
};

/* --- reading the string --- */

static size_t count_items(const char *list)
{
    size_t count = 1;
    for (; *list != '\0'; list++)
        count += *list == ',';
    return count;
}

/* The item of that number in a list with commas; the last one where there is only one; NULL where it is empty. */
static char *item_of(const char *list, size_t number)
{
    const char *end;

    if (list == NULL)
        return NULL;
    for (; number > 0 && strchr(list, ',') != NULL; number--)
        list = strchr(list, ',') + 1;
    end = strchr(list, ',');
    if (end == list || *list == '\0')
        return NULL;
    return lh_format("%.*s", end == NULL ? (int)strlen(list) : (int)(end - list), list);
}

static void keep_option(struct lh_pg_hosts *hosts, const char *keyword, const char *value)
{
    if (hosts->option_count == OPTIONS_MAX)
        return;
    hosts->keywords[hosts->option_count] = lh_strdup(keyword);
    hosts->values[hosts->option_count++] = lh_strdup(value);
}

static bool is_of_attempt(const char *keyword)
{
    static const char *const names[] = {"host", "hostaddr", "port", "target_session_attrs", "load_balance_hosts"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(names[i], keyword) == 0)
            return true;
    return false;
}

static void split_hosts(struct lh_pg_hosts *hosts, const char *names, const char *addresses, const char *ports)
{
    const char *list = addresses != NULL ? addresses : names;

    hosts->count = list == NULL ? 1 : count_items(list);
    hosts->hosts = lh_alloc_zero(hosts->count, sizeof(hosts->hosts[0]));
    for (size_t i = 0; i < hosts->count; i++) {
        hosts->hosts[i].name = item_of(names, i);
        hosts->hosts[i].address = item_of(addresses, i);
        hosts->hosts[i].port = item_of(ports, i);
    }
}

static const char *value_of(const PQconninfoOption *options, const char *keyword)
{
    for (; options != NULL && options->keyword != NULL; options++)
        if (strcmp(options->keyword, keyword) == 0)
            return options->val != NULL && options->val[0] != '\0' ? options->val : NULL;
    return NULL;
}

static void keep_options(struct lh_pg_hosts *hosts, const PQconninfoOption *options)
{
    const char *timeout = value_of(options, "connect_timeout");

    for (const PQconninfoOption *each = options; each != NULL && each->keyword != NULL; each++)
        if (each->val != NULL && each->val[0] != '\0' && !is_of_attempt(each->keyword))
            keep_option(hosts, each->keyword, each->val);
    keep_option(hosts, "target_session_attrs", "any"); /* what the server is, the session asks itself */
    split_hosts(hosts, value_of(options, "host"), value_of(options, "hostaddr"), value_of(options, "port"));
    hosts->connect_timeout_us = timeout == NULL ? 0 : strtoll(timeout, NULL, 10) * LH_US_PER_S;
    if (hosts->connect_timeout_us < 0)
        hosts->connect_timeout_us = 0;
}

/*
 * What comes before `dbname` may be overridden in the string, what comes after may not. A peer that vanished is noticed
 * within 10 s by its silence to data or to probes; unix sockets ignore both.
 */
static void read_string(struct lh_pg_hosts *hosts, const char *conninfo)
{
    static const char *const names[] = {
        "application_name", "keepalives", "keepalives_idle", "keepalives_interval",  "keepalives_count",
        "tcp_user_timeout", "dbname",     "client_encoding", "target_session_attrs", NULL,
    };
    const char *values[] = {"leaseholdd", "1", "4", "2", "3", "10000", conninfo, "UTF8", STOP, NULL};
    PGconn *parsed = PQconnectStartParams(names, values, 1);
    PQconninfoOption *options = PQconninfo(parsed);

    if (strstr(PQerrorMessage(parsed), STOP) == NULL)
        lh_pg_error_of_conn(parsed, &hosts->broken);
    keep_options(hosts, options);
    PQconninfoFree(options);
    PQfinish(parsed);
}

/* --- places --- */

static bool is_name(const struct host *host)
{
    unsigned char numeric[sizeof(struct in6_addr)];

    if (host->address != NULL || host->name == NULL || host->name[0] == '/' || host->name[0] == '@')
        return false;
    return inet_pton(AF_INET, host->name, numeric) != 1 && strchr(host->name, ':') == NULL;
}

static void on_looked_up(void *arg, const char (*addresses)[LH_PG_ADDRESS_BYTES], size_t count, const char *words)
{
    struct lh_pg_hosts *hosts = arg;
    struct host *host = &hosts->hosts[hosts->next.host];

    hosts->lookup = NULL;
    host->is_looked_up = true;
    host->found_count = count;
    memcpy(host->found, addresses, count * sizeof(addresses[0]));
    snprintf(host->words, sizeof(host->words), "%s", count > 0 ? "" : words[0] != '\0' ? words : "no address");
    hosts->on_found(hosts->arg);
}

bool lh_pg_hosts_find(struct lh_pg_hosts *hosts, struct lh_pg_place *place)
{
    struct host *host = &hosts->hosts[hosts->next.host];

    *place = hosts->next;
    if (!is_name(host) || host->is_looked_up)
        return true;
    if (hosts->lookup == NULL)
        hosts->lookup = lh_pg_lookup_start(hosts->loop, host->name, on_looked_up, hosts);
    if (hosts->lookup == NULL) {
        host->is_looked_up = true;
        host->found_count = 0;
        snprintf(host->words, sizeof(host->words), "no thread or descriptor is left to look it up");
    }
    return hosts->lookup == NULL;
}

PGconn *lh_pg_hosts_open(struct lh_pg_hosts *hosts, struct lh_error *error, bool *is_permanent)
{
    const struct host *host = &hosts->hosts[hosts->next.host];
    const char *address = host->address;
    const char *keywords[OPTIONS_MAX + 4];
    const char *values[OPTIONS_MAX + 4];
    size_t count = hosts->option_count;

    *is_permanent = hosts->broken.status != LH_OK;
    if (*is_permanent) {
        *error = hosts->broken;
        return NULL;
    }
    if (is_name(host) && host->found_count == 0) {
        lh_error_set(error, LH_DATABASE_UNAVAILABLE, "host name \"%s\" has no address: %s", host->name, host->words);
        return NULL;
    }
    if (is_name(host))
        address = host->found[hosts->next.address];
    memcpy(keywords, hosts->keywords, count * sizeof(keywords[0]));
    memcpy(values, hosts->values, count * sizeof(values[0]));
    keywords[count] = "host", values[count++] = host->name;
    keywords[count] = "hostaddr", values[count++] = address;
    keywords[count] = "port", values[count++] = host->port;
    keywords[count] = NULL, values[count] = NULL;
    return PQconnectStartParams(keywords, values, 0);
}

/* Its names are looked up again when its turn comes again: a fail-over may be one of the name's address. */
void lh_pg_hosts_leave(struct lh_pg_hosts *hosts, const struct lh_pg_place *place)
{
    struct host *host = &hosts->hosts[hosts->next.host];

    if (hosts->next.host != place->host || hosts->next.address != place->address)
        return;
    hosts->next.address++;
    if (is_name(host) && host->is_looked_up && hosts->next.address < host->found_count)
        return;
    host->is_looked_up = false;
    lh_pg_lookup_abandon(hosts->lookup);
    hosts->lookup = NULL;
    hosts->next = (struct lh_pg_place){(hosts->next.host + 1) % hosts->count, 0};
}

void lh_pg_hosts_settle(struct lh_pg_hosts *hosts, const struct lh_pg_place *place)
{
    if (hosts->next.host == place->host && hosts->next.address == place->address)
        return;
    lh_pg_lookup_abandon(hosts->lookup);
    hosts->lookup = NULL;
    hosts->next = *place;
    /* The place may be one of an earlier lookup. */
    if (place->address >= hosts->hosts[place->host].found_count)
        hosts->next.address = 0;
}

size_t lh_pg_hosts_count(const struct lh_pg_hosts *hosts)
{
    return hosts->count;
}

int64_t lh_pg_hosts_connect_timeout_us(const struct lh_pg_hosts *hosts)
{
    return hosts->connect_timeout_us;
}

void lh_pg_hosts_name(const struct lh_pg_hosts *hosts, size_t host, char text[LH_PG_HOST_TEXT_BYTES])
{
    const struct host *wanted = &hosts->hosts[host];
    const char *name = wanted->name != NULL ? wanted->name : wanted->address != NULL ? wanted->address : "local socket";

    if (wanted->port != NULL)
        snprintf(text, LH_PG_HOST_TEXT_BYTES, "%s:%s", name, wanted->port);
    else
        snprintf(text, LH_PG_HOST_TEXT_BYTES, "%s", name);
}

struct lh_pg_hosts *lh_pg_hosts_create(struct lh_loop *loop, const char *conninfo, void (*on_found)(void *arg),
                                       void *arg)
{
    struct lh_pg_hosts *hosts = lh_alloc_zero(1, sizeof(*hosts));

    hosts->loop = loop;
    hosts->on_found = on_found;
    hosts->arg = arg;
    read_string(hosts, conninfo);
    return hosts;
}

void lh_pg_hosts_destroy(struct lh_pg_hosts *hosts)
{
    if (hosts == NULL)
        return;
    lh_pg_lookup_abandon(hosts->lookup);
    for (size_t i = 0; i < hosts->option_count; i++) {
        free(hosts->keywords[i]);
        free(hosts->values[i]);
    }
    for (size_t i = 0; i < hosts->count; i++) {
        free(hosts->hosts[i].name);
        free(hosts->hosts[i].address);
        free(hosts->hosts[i].port);
    }
    free(hosts->hosts);
    free(hosts);
}

/* --- a check of the string: libpq itself refuses unknown words and values only when it connects --- */

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
