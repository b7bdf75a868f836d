/* The network: a socket for each client and daemon, which carries bytes to the daemon and back, late or not at all. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "simulation.h"

#define READ_BYTES 65536
#define LINKS_MAX 16 /* connections of one client to one daemon */

struct piece {
    struct piece *next;
    int64_t due_us;
    size_t size; /* 0: the end of the stream */
    size_t sent;
    char bytes[];
};

/* One direction. */
struct way {
    struct link *link;
    struct lh_watch watch; /* on where it comes from */
    int to;
    struct piece *first, **last;
    int64_t last_due_us;
    struct lh_timer timer;
};

struct link {
    struct route *route;
    int fds[2]; /* the client's end, the daemon's */
    struct way ways[2];
    struct lh_deferred end;
    bool is_used;
};

struct route {
    int daemon;
    int listener;
    struct lh_watch watch;
    int64_t stalled_until_us[2]; /* to the daemon, and back */
    struct link links[LINKS_MAX];
};

static struct route routes[WORKERS_MAX][DAEMONS_MAX];
static struct process network;

void network_address(int worker, int number, char *text, size_t bytes)
{
    snprintf(text, bytes, "unix:%s/n%d%d", sim.directory, worker, number);
}

static struct sockaddr_un unix_address(const char *text)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", text + strlen("unix:"));
    return address;
}

static void end_link(void *arg)
{
    struct link *link = arg;

    for (int i = 0; i < 2; i++) {
        struct way *way = &link->ways[i];
        lh_watch_finish(&way->watch);
        lh_timer_finish(&way->timer);
        while (way->first != NULL) {
            struct piece *piece = way->first;
            way->first = piece->next;
            free(piece);
        }
    }
    lh_deferred_cancel(&link->end);
    close(link->fds[0]);
    close(link->fds[1]);
    link->is_used = false;
}

static void deliver(void *arg)
{
    struct way *way = arg;
    int64_t now_us = lh_clock_us();

    while (way->first != NULL && way->first->due_us <= now_us) {
        struct piece *piece = way->first;
        ssize_t sent =
            piece->size == 0 ? 0 : send(way->to, piece->bytes + piece->sent, piece->size - piece->sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            lh_timer_arm_at_us(&way->timer, now_us + LH_US_PER_MS); /* its reader is stopped */
            return;
        }
        if (sent <= 0) {
            lh_defer(network.loop, &way->link->end);
            return;
        }
        piece->sent += (size_t)sent;
        if (piece->sent < piece->size)
            continue;
        way->first = piece->next;
        if (way->first == NULL)
            way->last = &way->first;
        free(piece);
    }
    if (way->first != NULL)
        lh_timer_arm_at_us(&way->timer, way->first->due_us);
}

static void on_bytes(void *arg, unsigned ready)
{
    static char bytes[READ_BYTES];
    struct way *way = arg;
    struct route *route = way->link->route;
    ssize_t size = recv(way->watch.fd, bytes, sizeof(bytes), 0);
    int64_t due_us = lh_clock_us() + fake_delay_us(&sim.world);
    struct piece *piece;

    if (size < 0 && errno == EAGAIN)
        return;
    if (size <= 0) {
        size = 0;
        lh_watch_want(&way->watch, 0);
    }
    if (due_us < route->stalled_until_us[way - way->link->ways])
        due_us = route->stalled_until_us[way - way->link->ways];
    if (due_us < way->last_due_us)
        due_us = way->last_due_us;
    way->last_due_us = due_us;
    piece = lh_alloc_zero(1, sizeof(*piece) + (size_t)size);
    piece->due_us = due_us;
    piece->size = (size_t)size;
    memcpy(piece->bytes, bytes, (size_t)size);
    *way->last = piece;
    way->last = &piece->next;
    lh_timer_arm_at_us(&way->timer, way->first->due_us);
}

static void begin_way(struct way *way, struct link *link, int from, int to)
{
    *way = (struct way){.link = link, .to = to, .last = &way->first};
    lh_timer_init(&way->timer, network.loop, deliver, way);
    lh_watch_init(&way->watch, network.loop, from, on_bytes, way);
    lh_watch_want(&way->watch, LH_WATCH_READ);
}

static void on_client(void *arg, unsigned ready)
{
    struct route *route = arg;
    int client = accept4(route->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    int number = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct link *link = NULL;
    struct sockaddr_un address;
    char text[96];

    daemon_address(route->daemon, text, sizeof(text));
    address = unix_address(text);
    for (int i = 0; i < LINKS_MAX && link == NULL; i++)
        link = route->links[i].is_used ? NULL : &route->links[i];
    if (client < 0 || link == NULL || connect(number, (struct sockaddr *)&address, sizeof(address)) != 0) {
        close(number);
        if (client >= 0)
            close(client);
        return;
    }
    *link = (struct link){.route = route, .fds = {client, number}, .is_used = true};
    lh_deferred_init(&link->end, end_link, link);
    begin_way(&link->ways[0], link, client, number);
    begin_way(&link->ways[1], link, number, client);
}

void network_start(void)
{
    process_start(&network);
    memset(routes, 0, sizeof(routes));
    for (int w = 0; w < sim.workers; w++) {
        for (int d = 0; d < sim.daemons; d++) {
            struct route *route = &routes[w][d];
            struct sockaddr_un address;
            char text[96];
            network_address(w, d, text, sizeof(text));
            address = unix_address(text);
            route->daemon = d;
            route->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
            if (bind(route->listener, (struct sockaddr *)&address, sizeof(address)) != 0 ||
                listen(route->listener, LINKS_MAX) != 0)
                fake_fail("%s: %s", text, strerror(errno));
            lh_watch_init(&route->watch, network.loop, route->listener, on_client, route);
            lh_watch_want(&route->watch, LH_WATCH_READ);
        }
    }
}

void network_end(void)
{
    for (int w = 0; w < sim.workers; w++) {
        for (int d = 0; d < sim.daemons; d++) {
            char text[96];
            network_cut(w, d);
            lh_watch_finish(&routes[w][d].watch);
            close(routes[w][d].listener);
            network_address(w, d, text, sizeof(text));
            unlink(text + strlen("unix:"));
        }
    }
    process_end(&network);
}

void network_cut(int worker, int number)
{
    struct route *route = &routes[worker][number];
    for (int i = 0; i < LINKS_MAX; i++)
        if (route->links[i].is_used)
            end_link(&route->links[i]);
}

void network_stall(int worker, int number, unsigned ways, int64_t until_us)
{
    for (unsigned way = 0; way < 2; way++)
        if (ways & 1u << way)
            routes[worker][number].stalled_until_us[way] = until_us;
}

void network_calm(void)
{
    for (int w = 0; w < sim.workers; w++)
        for (int d = 0; d < sim.daemons; d++)
            network_stall(w, d, WAYS_BOTH, 0);
}
