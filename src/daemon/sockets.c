#include "daemon/sockets.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "config/settings.h"
#include "daemon/process.h"

static enum lh_status bind_one(struct lh_sockets *sockets, const char *text, bool reuse_port,
                               const struct lh_settings *settings, const struct lh_user *user, int *fd,
                               char bound[LH_ADDRESS_TEXT_BYTES], struct lh_error *error)
{
    const struct lh_bind how = {.address = text,
                                .reuse_port = reuse_port,
                                .socket_mode = (mode_t)settings->socket_mode,
                                .owner = user->uid,
                                .group = user->gid};
    enum lh_status status = lh_bind(&how, fd, bound, error);

    if (status != LH_OK)
        return status;
    if (strncmp(bound, "unix:", 5) == 0) {
        sockets->paths = lh_realloc(sockets->paths, sockets->path_count + 1, sizeof(char *));
        sockets->paths[sockets->path_count++] = lh_strdup(bound + 5);
    }
    return LH_OK;
}

enum lh_status lh_sockets_bind(struct lh_sockets *sockets, const struct lh_settings *settings,
                               const struct lh_user *user, struct lh_error *error)
{
    const struct lh_strings *listen = &settings->listen;
    bool has_tcp = false;
    enum lh_status status = LH_OK;

    *sockets = (struct lh_sockets){.admin = -1, .admin_address = "none"};
    sockets->grpc = lh_alloc_zero(listen->count, sizeof(int));
    if (settings->admin != NULL)
        status =
            bind_one(sockets, settings->admin, false, settings, user, &sockets->admin, sockets->admin_address, error);
    for (size_t i = 0; status == LH_OK && i < listen->count; i++) {
        char bound[LH_ADDRESS_TEXT_BYTES];
        status =
            bind_one(sockets, listen->items[i], settings->reuse_port, settings, user, &sockets->grpc[i], bound, error);
        if (status != LH_OK)
            break;
        sockets->grpc_count++;
        if (i == 0 || (!has_tcp && strncmp(bound, "unix:", 5) != 0))
            memcpy(sockets->grpc_address, bound, sizeof(bound));
        has_tcp |= strncmp(bound, "unix:", 5) != 0;
    }
    if (status != LH_OK)
        lh_sockets_finish(sockets);
    return status;
}

void lh_sockets_finish(struct lh_sockets *sockets)
{
    if (sockets->grpc == NULL)
        return;
    if (sockets->admin >= 0)
        close(sockets->admin);
    for (size_t i = 0; i < sockets->grpc_count; i++) {
        if (sockets->grpc[i] >= 0)
            close(sockets->grpc[i]);
    }
    for (size_t i = 0; i < sockets->path_count; i++) {
        unlink(sockets->paths[i]);
        free(sockets->paths[i]);
    }
    free(sockets->paths);
    free(sockets->grpc);
    memset(sockets, 0, sizeof(*sockets));
}
