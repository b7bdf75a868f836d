#include "rpc/listen.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "rpc/address.h"

static const char *path_of(const struct rpc_address *address)
{
    const struct sockaddr_un *name = (const struct sockaddr_un *)(const void *)&address->storage;

    return address->storage.ss_family == AF_UNIX ? name->sun_path : NULL;
}

/* A socket file that no process answers on is left over from an earlier life; nothing else is removed. */
static enum lh_status remove_stale(const struct rpc_address *address, struct lh_error *error)
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
static bool set_owner(const struct lh_rpc_bind *how, const char *path)
{
    if (path == NULL)
        return true;
    if (how->owner != 0 && lchown(path, how->owner, how->group) != 0)
        return false;
    return how->socket_mode == 0 || chmod(path, how->socket_mode) == 0;
}

enum lh_status lh_rpc_bind(const struct lh_rpc_bind *how, int *fd, char bound[LH_RPC_BOUND_BYTES],
                           struct lh_error *error)
{
    char text[RPC_ADDRESS_TEXT_BYTES];
    struct rpc_address address;

    if (lh_rpc_address_parse(how->address, &address, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    if (remove_stale(&address, error) != LH_OK)
        return LH_INTERNAL;
    *fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd >= 0 && set_options(*fd, address.storage.ss_family, how->reuse_port) &&
        bind(*fd, (const struct sockaddr *)(const void *)&address.storage, address.size) == 0 &&
        set_owner(how, path_of(&address))) {
        address.size = sizeof(address.storage);
        getsockname(*fd, (struct sockaddr *)(void *)&address.storage, &address.size);
        lh_rpc_address_format(&address, text);
        if (bound != NULL)
            snprintf(bound, LH_RPC_BOUND_BYTES, "%s", path_of(&address) != NULL ? how->address : text);
        return LH_OK;
    }
    lh_error_set(error, LH_INTERNAL, "cannot listen on %s: %s", how->address, strerror(errno));
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return LH_INTERNAL;
}
