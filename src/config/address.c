#include "config/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "config/table.h"

#define HOST_MAX_BYTES 64

static bool parse_port(const char *text, in_port_t *port)
{
    size_t digits = strspn(text, "0123456789");
    long number = strtol(text, NULL, 10);

    if (digits == 0 || digits > 5 || text[digits] != '\0' || number > 65535)
        return false;
    *port = htons((in_port_t)number);
    return true;
}

static bool parse_unix(const char *path, struct lh_address *address, char *why, size_t why_bytes)
{
    struct sockaddr_un *name = (struct sockaddr_un *)&address->socket;

    if (*path != '/')
        return lh_config_refuse(why, why_bytes, "the path of a unix socket begins with /");
    if (strlen(path) >= sizeof(name->sun_path))
        return lh_config_refuse(why, why_bytes, "the path of a unix socket has at most 107 bytes");
    name->sun_family = AF_UNIX;
    memcpy(name->sun_path, path, strlen(path) + 1);
    address->size = sizeof(*name);
    return true;
}

bool lh_address_parse(const char *text, struct lh_address *address, char *why, size_t why_bytes)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)&address->socket;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&address->socket;
    const char *colon = strrchr(text, ':');
    char host[HOST_MAX_BYTES];
    size_t host_size;
    in_port_t port;

    memset(address, 0, sizeof(*address));
    if (strncmp(text, "unix:", 5) == 0)
        return parse_unix(text + 5, address, why, why_bytes);
    if (colon == NULL || !parse_port(colon + 1, &port))
        return lh_config_refuse(why, why_bytes, "expected ADDRESS:PORT with a port of 0 to 65535, or unix:/PATH");
    host_size = (size_t)(colon - text);
    if (host_size >= sizeof(host))
        return lh_config_refuse(why, why_bytes, "not an IPv4 address, an IPv6 address in brackets, or localhost");
    memcpy(host, text, host_size);
    host[host_size] = '\0';
    if (strcmp(host, "localhost") == 0)
        snprintf(host, sizeof(host), "127.0.0.1");
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = port;
        address->size = sizeof(*v4);
        return true;
    }
    if (host_size > 2 && host[0] == '[' && host[host_size - 1] == ']') {
        host[host_size - 1] = '\0';
        if (inet_pton(AF_INET6, host + 1, &v6->sin6_addr) == 1) {
            v6->sin6_family = AF_INET6;
            v6->sin6_port = port;
            address->size = sizeof(*v6);
            return true;
        }
    }
    return lh_config_refuse(why, why_bytes, "not an IPv4 address, an IPv6 address in brackets, or localhost");
}

bool lh_address_is_local(const struct lh_address *address)
{
    if (address->socket.ss_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)&address->socket)->sin_addr.s_addr) >> 24 == 127;
    if (address->socket.ss_family == AF_INET6) {
        const struct in6_addr *v6 = &((const struct sockaddr_in6 *)&address->socket)->sin6_addr;
        return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127);
    }
    return address->socket.ss_family == AF_UNIX;
}

void lh_address_format(const struct lh_address *address, char text[LH_ADDRESS_TEXT_BYTES])
{
    char host[INET6_ADDRSTRLEN] = "";

    if (address->socket.ss_family == AF_UNIX) {
        snprintf(text, LH_ADDRESS_TEXT_BYTES, "unix:%s", ((const struct sockaddr_un *)&address->socket)->sun_path);
    } else if (address->socket.ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&address->socket;
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
        snprintf(text, LH_ADDRESS_TEXT_BYTES, "[%s]:%u", host, ntohs(v6->sin6_port));
    } else {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)&address->socket;
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
        snprintf(text, LH_ADDRESS_TEXT_BYTES, "%s:%u", host, ntohs(v4->sin_port));
    }
}
