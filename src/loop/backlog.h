/*
 * Work that costs milliseconds a piece, such as the steps of TLS handshakes: it is done in order, for a bounded time in
 * each turn of the loop, so that what else there is goes on in between.
 *
 *     lh_backlog_init(&backlog, loop, 2 * LH_US_PER_MS);
 *     lh_backlog_item_init(&connection->step, take_step, connection);
 *     lh_backlog_add(&backlog, &connection->step);
 */
#ifndef LH_LOOP_BACKLOG_H
#define LH_LOOP_BACKLOG_H

#include "loop/loop.h"

struct lh_backlog {
    struct lh_link items;
    struct lh_timer turn;
    int64_t turn_us;
};

struct lh_backlog_item {
    struct lh_link link;
    void (*run)(void *arg);
    void *arg;
};

/* `turn_us`: no item is begun later than that after the first one of a turn. */
void lh_backlog_init(struct lh_backlog *backlog, struct lh_loop *loop, int64_t turn_us);
void lh_backlog_finish(struct lh_backlog *backlog); /* its items are removed, or not used any more */

void lh_backlog_item_init(struct lh_backlog_item *item, void (*run)(void *arg), void *arg);
/* Run it once, later. Adding what waits already does nothing. */
void lh_backlog_add(struct lh_backlog *backlog, struct lh_backlog_item *item);
void lh_backlog_remove(struct lh_backlog_item *item); /* allowed for one that does not wait, or is zeroed */

#endif
