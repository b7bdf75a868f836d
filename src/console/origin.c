/*
 * Which browsers may come in. A page of another site can make a browser send requests here, and a name that a stranger
 * owns can be made to lead here (DNS rebinding), where a client without credentials may do everything. So the host
 * that a browser names must be an address, localhost or a name from admin_hosts, and the site that a request comes from
 * must be that host. Under TLS a stranger's name has no certificate here.
 */
#include "console/origin.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#include "console/answer.h"

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
        lh_console_refuse(
            request, 421,
            "the host of the request must be an address, localhost, or a name from the setting admin_hosts");
        return false;
    }
    if ((origin != NULL && !is_same_site(origin, host)) ||
        (!is_page && site != NULL && strcmp(site, "cross-site") == 0)) {
        console->stats.refused_origins++;
        lh_console_refuse(request, 403, "the request comes from a page of another site");
        return false;
    }
    return true;
}
