#include "client/blocking.h"

#include <errno.h>

#include "base/bounds.h"
#include "client/client.h"

enum lh_status lh_blocked_begin(struct blocked *blocked, struct lh_client *client, struct lh_error *error)
{
    *blocked = (struct blocked){.error = error};
    sem_init(&blocked->done, 0, 0);
    if (client == NULL)
        return lh_bounds_refuse(error, "lease", "not NULL", "lease is missing");
    if (!client->has_thread)
        return lh_error_set(error, LH_WOULD_BLOCK,
                            "this client lives on an event base, which a call that blocks would stop");
    if (lh_client_is_here(client))
        return lh_error_set(error, LH_WOULD_BLOCK, "a call that blocks, from inside of a callback of its client");
    return LH_OK;
}

enum lh_status lh_blocked_wait(struct blocked *blocked, enum lh_status started)
{
    if (started == LH_OK)
        while (sem_wait(&blocked->done) != 0 && errno == EINTR)
            ;
    else
        blocked->status = started;
    sem_destroy(&blocked->done);
    return blocked->status;
}

void lh_blocked_wake(struct blocked *blocked, enum lh_status status, const struct lh_error *error)
{
    blocked->status = status;
    if (blocked->error != NULL && status != LH_OK)
        *blocked->error = *error;
    sem_post(&blocked->done);
}

void lh_blocked_on_done(void *arg, enum lh_status status, const struct lh_error *error)
{
    lh_blocked_wake(arg, status, error);
}
