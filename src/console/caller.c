/* Who a request comes from: a bearer token, else the session of a cookie, else whoever the connection is. */
#include "console/console_internal.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "access/bearer.h"
#include "base/clock.h"
#include "base/memory.h"
#include "rpc/server.h"

void lh_console_forget_cookie(struct lh_http_request *request)
{
    lh_http_add_header(request, "Set-Cookie", SESSION_COOKIE "=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0");
}

void lh_console_set_cookie(struct lh_http_request *request, const struct session *session)
{
    char *cookie = lh_format("%s=%s; HttpOnly; SameSite=Strict; Path=/; Max-Age=%lld%s", SESSION_COOKIE, session->id,
                             (long long)(SESSION_LIFE_US / LH_US_PER_S), request->is_tls ? "; Secure" : "");

    lh_http_add_header(request, "Set-Cookie", cookie);
    free(cookie);
}

bool lh_console_identify(struct lh_console *console, struct lh_http_request *request, struct console_caller *caller)
{
    const char *csrf = lh_http_head_find(&request->head, "x-csrf-token");
    char id[SESSION_SECRET_BYTES];

    *caller = (struct console_caller){.authorization = lh_http_head_find(&request->head, "authorization")};
    if (caller->authorization != NULL && lh_bearer_is_foreign(caller->authorization))
        caller->authorization = NULL;
    if (caller->authorization != NULL ||
        !lh_session_cookie(lh_http_head_find(&request->head, "cookie"), SESSION_COOKIE, id, sizeof(id)))
        return true;
    caller->session = lh_session_find(&console->sessions, id, lh_clock_us());
    if (caller->session == NULL) {
        lh_console_forget_cookie(request);
        return lh_console_refuse(request, 401, "the session has ended: sign in again");
    }
    if (strcmp(request->head.method, "POST") == 0 && (csrf == NULL || !lh_session_is_csrf(caller->session, csrf)))
        return lh_console_refuse(request, 403, "the header X-CSRF-Token must be the csrf_token of /api/v1/session");
    caller->authorization = caller->session->authorization;
    return true;
}

static bool is_private(const struct lh_http_request *request)
{
    return request->is_tls || request->is_unix || strncmp(request->peer, "127.", 4) == 0 ||
           strncmp(request->peer, "[::1]", 5) == 0 || strncmp(request->peer, "[::ffff:127.", 12) == 0;
}

struct lh_rpc_channel *lh_console_connect(struct lh_console *console, struct lh_http_request *request)
{
    char *user = request->is_unix ? lh_rpc_unix_principal(request->fd) : NULL;
    struct lh_rpc_visitor visitor = {
        .principal = user != NULL ? user : request->principal,
        .peer = request->peer,
        .is_private = is_private(request),
    };
    int fd = console->server == NULL ? -1 : lh_rpc_server_open(console->server, &visitor);

    free(user);
    if (fd >= 0)
        return lh_rpc_channel_create_on(console->loop, fd);
    lh_console_refuse(request, 503, "the daemon is starting or shutting down");
    return NULL;
}

/* --- which browsers may come in --- */

/*
 * A page of another site can make a browser send requests here, and a name that a stranger
 * owns can be made to lead here (DNS rebinding), where a client without credentials may do everything. So the host
 * that a browser names must be an address, localhost or a name from admin_hosts, and the site that a request comes from
 * must be that host. Under TLS a stranger's name has no certificate here.
 */
static bool is_address(const char *host, size_t size)
{
    struct in6_addr bytes;
    char text[INET6_ADDRSTRLEN];

    if (size > 2 && host[0] == '[' && host[size - 1] == ']') {
        host++;
        size -= 2;
    }
    if (size >= sizeof(text))
        return false;
    memcpy(text, host, size);
    text[size] = '\0';
    return inet_pton(AF_INET, text, &bytes) == 1 || inet_pton(AF_INET6, text, &bytes) == 1;
}

/* Without a port. */
static size_t host_size(const char *host)
{
    const char *colon = strrchr(host, ':');

    if (host[0] == '[')
        return strcspn(host, "]") + (strchr(host, ']') != NULL);
    return colon == NULL ? strlen(host) : (size_t)(colon - host);
}

static bool is_name(const char *name, const char *host, size_t size)
{
    return strlen(name) == size && strncasecmp(name, host, size) == 0;
}

static bool is_known(const struct lh_console *console, const char *host)
{
    size_t size = host_size(host);

    for (size_t i = 0; i < console->host_count; i++)
        if (is_name(console->hosts[i], host, size))
            return true;
    return is_name("localhost", host, size) || is_address(host, size);
}

/* "https://console.example.org:7421"; a proxy in front may speak TLS where we do not. */
static bool is_same_site(const char *origin, const char *host)
{
    const char *site = strstr(origin, "://");

    return site != NULL && strcasecmp(site + 3, host) == 0;
}

bool lh_console_check_origin(struct lh_console *console, struct lh_http_request *request)
{
    const char *host = lh_http_head_find(&request->head, "host");
    const char *origin = lh_http_head_find(&request->head, "origin");
    const char *site = lh_http_head_find(&request->head, "sec-fetch-site");
    bool is_page = strncmp(request->head.path, "/api/", 5) != 0;

    if (host == NULL || (!request->is_tls && !request->is_unix && !is_known(console, host))) {
        console->stats.refused_origins++;
        return lh_console_refuse(
            request, 421,
            "the host of the request must be an address, localhost, or a name from the setting admin_hosts");
    }
    if ((origin != NULL && !is_same_site(origin, host)) ||
        (!is_page && site != NULL && strcmp(site, "cross-site") == 0)) {
        console->stats.refused_origins++;
        return lh_console_refuse(request, 403, "the request comes from a page of another site");
    }
    return true;
}
