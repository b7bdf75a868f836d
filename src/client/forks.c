/* Counts forks, and tells the clients that a child inherited from those that it made. */
#include "client/forks.h"

#include <pthread.h>
#include <stdatomic.h>

#include "client/client.h"

static atomic_uint forks; /* of this process and its ancestors, since the first client */

static void on_fork_in_child(void)
{
    atomic_fetch_add(&forks, 1);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, on_fork_in_child);
}

unsigned lh_client_count_forks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch_forks);
    return atomic_load(&forks);
}

bool lh_client_is_forked(const struct lh_client *client)
{
    return client->forks != atomic_load(&forks);
}

const char *lh_client_closed_words(const struct lh_client *client)
{
    return lh_client_is_forked(client) ? "the client was made before a fork: make a new one in the child"
                                       : "the client was closed";
}
