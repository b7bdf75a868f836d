#include "base/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define HOST_MAX_BYTES 256
#define NUMERIC_HOST_BYTES 64
#define UNIX_PATH_BYTES sizeof(((struct sockaddr_un *)NULL)->sun_path)
#define UNIX_PREFIX "unix:"

static void set_path(struct lh_address *address, const char *path)
{
    struct sockaddr_un *name = (struct sockaddr_un *)(void *)&address->storage;
    size_t size = strlen(path);

    name->sun_family = AF_UNIX;
    memcpy(name->sun_path, path, size + 1);
    address->size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size + 1);
}

/* --- to listen on --- */

/* Returns false, so that a check can end with it. */
static bool refuse(char *why, size_t why_bytes, const char *words)
{
    snprintf(why, why_bytes, "%s", words);
    return false;
}

static bool parse_port(const char *text, in_port_t *port)
{
    size_t digits = strspn(text, "0123456789");
    long number = strtol(text, NULL, 10);

    if (digits == 0 || digits > 5 || text[digits] != '\0' || number > 65535)
        return false;
    *port = htons((in_port_t)number);
    return true;
}

static bool parse_path(const char *path, struct lh_address *address, char *why, size_t why_bytes)
{
    if (*path != '/')
        return refuse(why, why_bytes, "the path of a unix socket begins with /");
    if (strlen(path) >= UNIX_PATH_BYTES)
        return refuse(why, why_bytes, "the path of a unix socket has at most 107 bytes");
    set_path(address, path);
    return true;
}

bool lh_address_parse(const char *text, struct lh_address *address, char *why, size_t why_bytes)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)&address->storage;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&address->storage;
    const char *colon = strrchr(text, ':');
    char host[NUMERIC_HOST_BYTES];
    size_t host_size;
    in_port_t port;

    memset(address, 0, sizeof(*address));
    if (strncmp(text, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0)
        return parse_path(text + strlen(UNIX_PREFIX), address, why, why_bytes);
    if (colon == NULL || !parse_port(colon + 1, &port))
        return refuse(why, why_bytes, "expected ADDRESS:PORT with a port of 0 to 65535, or unix:/PATH");
    host_size = (size_t)(colon - text);
    if (host_size >= sizeof(host))
        return refuse(why, why_bytes, "not an IPv4 address, an IPv6 address in brackets, or localhost");
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
    return refuse(why, why_bytes, "not an IPv4 address, an IPv6 address in brackets, or localhost");
}

/* --- to connect to --- */

/* "host:port" or "[host]:port" into its two halves. */
static bool split(const char *text, char host[HOST_MAX_BYTES], const char **port)
{
    const char *colon = strrchr(text, ':');
    const char *begin = text, *end = colon;

    if (colon == NULL || colon[1] == '\0' || strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
        strlen(colon + 1) > 5 || atoi(colon + 1) > 65535)
        return false;
    if (*text == '[') {
        begin = text + 1;
        end = colon - 1;
        if (end <= begin || *end != ']')
            return false;
    }
    if (end <= begin || end - begin >= HOST_MAX_BYTES || (*text != '[' && memchr(begin, ':', (size_t)(end - begin))))
        return false;
    memcpy(host, begin, (size_t)(end - begin));
    host[end - begin] = '\0';
    *port = colon + 1;
    return true;
}

static size_t resolve_path(const char *path, struct lh_address *address, struct lh_error *error)
{
    if (*path == '\0' || strlen(path) >= UNIX_PATH_BYTES) {
        lh_error_set(error, LH_INVALID_ARGUMENT, "a unix socket's path has 1 to %zu bytes: %s", UNIX_PATH_BYTES - 1,
                     path);
        return 0;
    }
    memset(address, 0, sizeof(*address));
    set_path(address, path);
    return 1;
}

size_t lh_address_resolve(const char *text, struct lh_address *addresses, size_t room, struct lh_error *error)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char host[HOST_MAX_BYTES];
    const char *port;
    size_t count = 0;
    int failure;

    if (strncmp(text, UNIX_PREFIX, strlen(UNIX_PREFIX)) == 0)
        return resolve_path(text + strlen(UNIX_PREFIX), addresses, error);
    if (!split(text, host, &port)) {
        lh_error_set(error, LH_INVALID_ARGUMENT, "an address is HOST:PORT, [IPv6]:PORT or unix:/path, not %s", text);
        return 0;
    }
    failure = getaddrinfo(host, port, &hints, &found);
    if (failure != 0) {
        lh_error_set(error, LH_INVALID_ARGUMENT, "no such address %s: %s", text, gai_strerror(failure));
        return 0;
    }
    for (struct addrinfo *each = found; each != NULL && count < room; each = each->ai_next, count++) {
        memset(&addresses[count], 0, sizeof(addresses[count]));
        memcpy(&addresses[count].storage, each->ai_addr, each->ai_addrlen);
        addresses[count].size = each->ai_addrlen;
    }
    freeaddrinfo(found);
    return count;
}

/* --- as text, and bound --- */

bool lh_address_is_local(const struct lh_address *address)
{
    const void *storage = &address->storage;

    if (address->storage.ss_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)storage)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    if (address->storage.ss_family == AF_INET6) {
        const struct in6_addr *v6 = &((const struct sockaddr_in6 *)storage)->sin6_addr;
        return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == IN_LOOPBACKNET);
    }
    return address->storage.ss_family == AF_UNIX;
}

void lh_address_format(const struct lh_address *address, char text[LH_ADDRESS_TEXT_BYTES])
{
    const void *storage = &address->storage;
    char host[INET6_ADDRSTRLEN] = "?";

    if (address->storage.ss_family == AF_INET) {
        const struct sockaddr_in *in = storage;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
        snprintf(text, LH_ADDRESS_TEXT_BYTES, "%s:%u", host, ntohs(in->sin_port));
    } else if (address->storage.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = storage;
        inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
        snprintf(text, LH_ADDRESS_TEXT_BYTES, "[%s]:%u", host, ntohs(in6->sin6_port));
    } else {
        const struct sockaddr_un *local = storage;
        bool has_path = address->size > offsetof(struct sockaddr_un, sun_path);
        snprintf(text, LH_ADDRESS_TEXT_BYTES, "unix:%s", has_path ? local->sun_path : "");
    }
}

static const char *path_of(const struct lh_address *address)
{
    const struct sockaddr_un *name = (const struct sockaddr_un *)(const void *)&address->storage;

    return address->storage.ss_family == AF_UNIX ? name->sun_path : NULL;
}

/* A socket file that no process answers on is left over from an earlier life; nothing else is removed. */
static enum lh_status remove_stale(const struct lh_address *address, struct lh_error *error)
{
    const char *path = path_of(address);
    struct stat found;
    int fd, failure = 0;

    if (path == NULL || lstat(path, &found) != 0)
        return LH_OK;
    if (!S_ISSOCK(found.st_mode))
        return lh_error_set(error, LH_INTERNAL,
                            "cannot listen on unix:%s: the file there is not a socket; remove it "
                            "or choose another path",
                            path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return LH_OK; /* and bind says what is wrong */
    if (connect(fd, (const struct sockaddr *)(const void *)&address->storage, address->size) != 0)
        failure = errno;
    close(fd);
    if (failure == 0 || failure == EAGAIN)
        return lh_error_set(error, LH_INTERNAL, "cannot listen on unix:%s: another process serves it", path);
    if (failure == ECONNREFUSED)
        unlink(path);
    return LH_OK;
}

static bool set_options(int fd, int family, bool reuse_port)
{
    int yes = 1;

    if (family == AF_UNIX)
        return true;
    return setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
           (!reuse_port || setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof(yes)) == 0) &&
           (family != AF_INET6 || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof(yes)) == 0);
}

/* Before it listens: no client comes in by the mode that the umask left. */
static bool set_owner(const struct lh_bind *how, const char *path)
{
    if (path == NULL)
        return true;
    if (how->owner != 0 && lchown(path, how->owner, how->group) != 0)
        return false;
    return how->socket_mode == 0 || chmod(path, how->socket_mode) == 0;
}

enum lh_status lh_bind(const struct lh_bind *how, int *fd, char bound[LH_ADDRESS_TEXT_BYTES], struct lh_error *error)
{
    char text[LH_ADDRESS_TEXT_BYTES], why[160];
    struct lh_address address;

    if (!lh_address_parse(how->address, &address, why, sizeof(why)))
        return lh_error_set(error, LH_INVALID_ARGUMENT, "%s: %s", how->address, why);
    if (remove_stale(&address, error) != LH_OK)
        return LH_INTERNAL;
    *fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd >= 0 && set_options(*fd, address.storage.ss_family, how->reuse_port) &&
        bind(*fd, (const struct sockaddr *)(const void *)&address.storage, address.size) == 0 &&
        set_owner(how, path_of(&address))) {
        address.size = sizeof(address.storage);
        getsockname(*fd, (struct sockaddr *)(void *)&address.storage, &address.size);
        lh_address_format(&address, text);
        if (bound != NULL)
            snprintf(bound, LH_ADDRESS_TEXT_BYTES, "%s", path_of(&address) != NULL ? how->address : text);
        return LH_OK;
    }
    lh_error_set(error, LH_INTERNAL, "cannot listen on %s: %s", how->address, strerror(errno));
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return LH_INTERNAL;
}
