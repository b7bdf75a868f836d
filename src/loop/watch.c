/* Descriptors and signals: thin over libevent, so that nobody else has to know its flags. */
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "loop/internal.h"
#include "loop/loop.h"

static struct event *checked(struct event *event)
{
    if (event == NULL) {
        lh_err("libevent refused an event; stopping");
        abort();
    }
    return event;
}

static void on_event(evutil_socket_t fd, short what, void *arg)
{
    struct lh_watch *watch = arg;
    unsigned ready = 0;
    watch->loop->events++;
    if (what & EV_READ)
        ready |= LH_WATCH_READ;
    if (what & EV_WRITE)
        ready |= LH_WATCH_WRITE;
    watch->on_ready(watch->arg, ready);
}

void lh_watch_init(struct lh_watch *watch, struct lh_loop *loop, int fd, void (*on_ready)(void *arg, unsigned ready),
                   void *arg)
{
    memset(watch, 0, sizeof(*watch));
    watch->loop = loop;
    watch->on_ready = on_ready;
    watch->arg = arg;
    watch->fd = fd;
}

static bool has_event(struct lh_watch *watch)
{
    if (watch->event != NULL)
        return true;
    watch->event = checked(event_new(watch->loop->base, watch->fd, EV_PERSIST, on_event, watch));
    return false;
}

void lh_watch_again(struct lh_watch *watch)
{
    has_event(watch);
    event_active(watch->event, EV_READ, 0);
}

void lh_watch_want(struct lh_watch *watch, unsigned wanted)
{
    short flags = EV_PERSIST;

    if (wanted == watch->wanted)
        return;
    if (has_event(watch))
        event_del(watch->event);
    watch->wanted = wanted;
    if (wanted == 0)
        return;
    if (wanted & LH_WATCH_READ)
        flags |= EV_READ;
    if (wanted & LH_WATCH_WRITE)
        flags |= EV_WRITE;
    event_assign(watch->event, watch->loop->base, watch->fd, flags, on_event, watch);
    if (event_add(watch->event, NULL) != 0)
        lh_err("cannot watch a descriptor fd=%d", watch->fd);
}

void lh_watch_finish(struct lh_watch *watch)
{
    if (watch->event != NULL)
        event_free(watch->event);
    watch->event = NULL;
    watch->wanted = 0;
}

static void on_libevent_signal(evutil_socket_t number, short what, void *arg)
{
    struct lh_signal *handler = arg;
    handler->on_signal(handler->arg, (int)number);
}

void lh_signal_init(struct lh_signal *handler, struct lh_loop *loop, int number,
                    void (*on_signal)(void *arg, int number), void *arg)
{
    handler->on_signal = on_signal;
    handler->arg = arg;
    handler->event = checked(evsignal_new(loop->base, number, on_libevent_signal, handler));
    if (event_add(handler->event, NULL) != 0)
        lh_err("cannot handle a signal number=%d", number);
}

void lh_signal_finish(struct lh_signal *handler)
{
    if (handler->event != NULL)
        event_free(handler->event);
    handler->event = NULL;
}
