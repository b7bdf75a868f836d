/*
 * Doubly linked lists with the links inside the objects. The head is a link too; an empty list points to itself.
 *
 *     struct waiter { struct lh_link in_scope; ... };
 *     LH_LIST_EACH (struct waiter, w, &scope->waiters, in_scope) ...
 *
 * A link that is in no list is zero (lh_link_is_linked says false); lh_list_remove makes it so again.
 */
#ifndef LH_BASE_LIST_H
#define LH_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct lh_link {
    struct lh_link *next;
    struct lh_link *prev;
};

#define LH_CONTAINER(type, member, link) ((type *)(void *)((char *)(link)-offsetof(type, member)))

static inline void lh_list_init(struct lh_link *head)
{
    head->next = head;
    head->prev = head;
}

static inline bool lh_list_is_empty(const struct lh_link *head)
{
    return head->next == head;
}

static inline bool lh_link_is_linked(const struct lh_link *link)
{
    return link->next != NULL;
}

/* Put `link` in front of `place`; with `place` the head, at the end of the list. */
static inline void lh_list_insert_before(struct lh_link *place, struct lh_link *link)
{
    link->prev = place->prev;
    link->next = place;
    place->prev->next = link;
    place->prev = link;
}

static inline void lh_list_append(struct lh_link *head, struct lh_link *link)
{
    lh_list_insert_before(head, link);
}

static inline void lh_list_prepend(struct lh_link *head, struct lh_link *link)
{
    lh_list_insert_before(head->next, link);
}

/* Does nothing to a link that is in no list. */
static inline void lh_list_remove(struct lh_link *link)
{
    if (link->next == NULL)
        return;
    link->prev->next = link->next;
    link->next->prev = link->prev;
    link->next = NULL;
    link->prev = NULL;
}

/* Move everything from `from` to the end of `to`. */
static inline void lh_list_splice(struct lh_link *to, struct lh_link *from)
{
    if (lh_list_is_empty(from))
        return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    lh_list_init(from);
}

#define LH_LIST_FIRST(type, head, member) (lh_list_is_empty(head) ? NULL : LH_CONTAINER(type, member, (head)->next))

/* The body may remove `item` itself, and nothing else. */
#define LH_LIST_EACH(type, item, head, member)                                                                         \
    for (struct lh_link *item##_link = (head)->next, *item##_next = item##_link->next; item##_link != (head);          \
         item##_link = item##_next, item##_next = item##_link->next)                                                   \
        for (type *item = LH_CONTAINER(type, member, item##_link), *item##_once = item; item##_once != NULL;           \
             item##_once = NULL)

#endif
