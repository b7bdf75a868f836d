/*
 * The addresses of a host name, looked up by getaddrinfo in a thread of its own, because it blocks as long as the
 * resolver's time-outs allow.
 *
 *     lookup = lh_pg_lookup_start(loop, "db1.example", on_looked_up, host);
 *     ... on_looked_up(host, addresses, 2, "")
 */
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/memory.h"
#include "pg/conn_internal.h"

/* Of the thread and the loop's side; the last of them frees it. */
struct search {
    atomic_int users;
    int done_fd; /* readable when the rest is filled in */
    char *name;
    char addresses[LH_PG_ADDRESSES_MAX][LH_PG_ADDRESS_BYTES];
    size_t count;
    char words[160];
};

struct lh_pg_lookup {
    struct search *search;
    struct lh_watch watch;
    lh_pg_lookup_cb *on_done;
    void *arg;
};

static void leave(struct search *search)
{
    if (atomic_fetch_sub(&search->users, 1) > 1)
        return;
    close(search->done_fd);
    free(search->name);
    free(search);
}

static void add_address(struct search *search, const struct addrinfo *found)
{
    char *text = search->addresses[search->count];

    if (getnameinfo(found->ai_addr, found->ai_addrlen, text, LH_PG_ADDRESS_BYTES, NULL, 0, NI_NUMERICHOST) == 0)
        search->count++;
}

static void *run(void *arg)
{
    struct search *search = arg;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    uint64_t one = 1;
    int error = getaddrinfo(search->name, NULL, &hints, &found);

    if (error != 0) {
        snprintf(search->words, sizeof(search->words), "%s", gai_strerror(error));
    } else {
        for (struct addrinfo *each = found; each != NULL && search->count < LH_PG_ADDRESSES_MAX; each = each->ai_next)
            add_address(search, each);
        freeaddrinfo(found);
    }
    /* It cannot fail: the counter is 0, and the descriptor is open as long as this side uses it. */
    if (write(search->done_fd, &one, sizeof(one)) < 0)
        abort();
    leave(search);
    return NULL;
}

static void on_ready(void *arg, unsigned ready)
{
    struct lh_pg_lookup *lookup = arg;
    struct search *search = lookup->search;

    lh_watch_finish(&lookup->watch);
    lookup->on_done(lookup->arg, (const char(*)[LH_PG_ADDRESS_BYTES])search->addresses, search->count, search->words);
    leave(search);
    free(lookup);
}

/* Signals are for the loop's thread alone. */
static int start_thread(struct search *search)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    int error;

    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&thread, &attributes, run, search);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

struct lh_pg_lookup *lh_pg_lookup_start(struct lh_loop *loop, const char *name, lh_pg_lookup_cb *on_done, void *arg)
{
    struct search *search = lh_alloc_zero(1, sizeof(*search));
    struct lh_pg_lookup *lookup;

    atomic_init(&search->users, 2);
    search->name = lh_strdup(name);
    search->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (search->done_fd < 0 || start_thread(search) != 0) {
        atomic_store(&search->users, 1);
        leave(search);
        return NULL;
    }
    lookup = lh_alloc_zero(1, sizeof(*lookup));
    lookup->search = search;
    lookup->on_done = on_done;
    lookup->arg = arg;
    lh_watch_init(&lookup->watch, loop, search->done_fd, on_ready, lookup);
    lh_watch_want(&lookup->watch, LH_WATCH_READ);
    return lookup;
}

void lh_pg_lookup_abandon(struct lh_pg_lookup *lookup)
{
    if (lookup == NULL)
        return;
    lh_watch_finish(&lookup->watch);
    leave(lookup->search);
    free(lookup);
}
