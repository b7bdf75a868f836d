#include "loop/backlog.h"

#include <string.h>

#include "base/clock.h"

static void on_turn(void *arg)
{
    struct lh_backlog *backlog = arg;
    int64_t until_us = lh_clock_us() + backlog->turn_us;

    do {
        struct lh_backlog_item *item = LH_LIST_FIRST(struct lh_backlog_item, &backlog->items, link);
        if (item == NULL)
            return;
        lh_list_remove(&item->link);
        item->run(item->arg);
    } while (lh_clock_us() < until_us);
    if (!lh_list_is_empty(&backlog->items))
        lh_timer_arm_at_us(&backlog->turn, until_us);
}

void lh_backlog_init(struct lh_backlog *backlog, struct lh_loop *loop, int64_t turn_us)
{
    memset(backlog, 0, sizeof(*backlog));
    backlog->turn_us = turn_us;
    lh_list_init(&backlog->items);
    lh_timer_init(&backlog->turn, loop, on_turn, backlog);
}

void lh_backlog_finish(struct lh_backlog *backlog)
{
    lh_timer_finish(&backlog->turn);
}

void lh_backlog_item_init(struct lh_backlog_item *item, void (*run)(void *arg), void *arg)
{
    memset(item, 0, sizeof(*item));
    item->run = run;
    item->arg = arg;
}

void lh_backlog_add(struct lh_backlog *backlog, struct lh_backlog_item *item)
{
    if (!lh_link_is_linked(&item->link))
        lh_list_append(&backlog->items, &item->link);
    if (!lh_timer_is_armed(&backlog->turn))
        lh_timer_arm_at_us(&backlog->turn, lh_clock_us());
}

void lh_backlog_remove(struct lh_backlog_item *item)
{
    lh_list_remove(&item->link);
}
