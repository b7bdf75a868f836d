#include "client/context.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/list.h"
#include "base/memory.h"

#define TIME_PASSED "its time has passed"

struct lh_context {
    struct lh_context *parent;
    struct root *root;
    _Atomic int64_t deadline_us;
    atomic_bool is_cancelled;
    /* Under the root's lock. */
    unsigned refs;
    bool moves; /* it is a lease's; never changes */
    bool is_free_of_time;
    int fd; /* -1: nobody asked */
    struct lh_link sibling;
    struct lh_link children;
    struct lh_link callbacks;
    char *words; /* set once, before `is_cancelled` */
};

struct root {
    struct lh_context context;
    pthread_mutex_t lock;
    pthread_cond_t is_done; /* with one of `running` */
    struct lh_link running;
    int64_t (*now_us)(void);
};

/* A callback's `internal`. */
struct waiting {
    struct lh_link link; /* in its context's `callbacks`, or in the list of who cancels */
    struct lh_context *context;
    void *is_due; /* not NULL: in a list of who cancels, and holds a reference to its context */
};
_Static_assert(sizeof(struct waiting) == sizeof(((struct lh_context_callback *)NULL)->internal), "it is kept in there");

/* A callback that is being called, on its caller's stack: the callback's own memory may be gone already. */
struct run {
    struct lh_link link;
    const struct lh_context_callback *callback;
    pthread_t thread;
};

static struct waiting *waiting_of(struct lh_context_callback *callback)
{
    return (struct waiting *)(void *)callback->internal;
}

static struct lh_context_callback *callback_of(struct lh_link *link)
{
    return LH_CONTAINER(struct lh_context_callback, internal, link);
}

static void context_init(struct lh_context *context, struct lh_context *parent, int64_t deadline_us)
{
    context->parent = parent;
    context->refs = 1;
    context->fd = -1;
    atomic_init(&context->deadline_us, deadline_us);
    atomic_init(&context->is_cancelled, false);
    lh_list_init(&context->children);
    lh_list_init(&context->callbacks);
}

static struct lh_context *create_root(int64_t deadline_us)
{
    struct root *root = lh_alloc_zero(1, sizeof(*root));

    context_init(&root->context, NULL, deadline_us);
    root->context.root = root;
    root->now_us = lh_clock_us;
    pthread_mutex_init(&root->lock, NULL);
    pthread_cond_init(&root->is_done, NULL);
    lh_list_init(&root->running);
    return &root->context;
}

static struct lh_context *create(struct lh_context *parent, int64_t deadline_us, bool moves)
{
    struct lh_context *context;

    if (parent == NULL) {
        context = create_root(deadline_us);
        context->moves = moves;
        return context;
    }
    context = lh_alloc_zero(1, sizeof(*context));
    context_init(context, parent, deadline_us);
    context->root = parent->root;
    context->moves = moves;
    pthread_mutex_lock(&parent->root->lock);
    parent->refs++;
    lh_list_append(&parent->children, &context->sibling);
    if (atomic_load(&parent->is_cancelled)) {
        context->words = lh_strdup(parent->words);
        atomic_store(&context->is_cancelled, true);
    }
    pthread_mutex_unlock(&parent->root->lock);
    return context;
}

struct lh_context *lh_context_create(struct lh_context *parent, int64_t deadline_us)
{
    return create(parent, deadline_us, false);
}

struct lh_context *lh_context_create_for_lease(struct lh_context *parent, int64_t deadline_us)
{
    return create(parent, deadline_us, true);
}

void lh_context_set_clock(struct lh_context *root, int64_t (*now_us)(void))
{
    root->root->now_us = now_us != NULL ? now_us : lh_clock_us;
}

struct lh_context *lh_context_ref(struct lh_context *context)
{
    pthread_mutex_lock(&context->root->lock);
    context->refs++;
    pthread_mutex_unlock(&context->root->lock);
    return context;
}

/* Callbacks that nobody removed will never be called. */
static void drop_callbacks(struct lh_context *context)
{
    while (!lh_list_is_empty(&context->callbacks))
        lh_list_remove(context->callbacks.next);
}

static void free_root(struct root *root)
{
    pthread_cond_destroy(&root->is_done);
    pthread_mutex_destroy(&root->lock);
    free(root);
}

/* With the lock. True: the root has lost its last reference, and is to be freed without it. */
static bool unref(struct lh_context *context)
{
    while (--context->refs == 0) {
        struct lh_context *parent = context->parent;
        drop_callbacks(context);
        lh_list_remove(&context->sibling);
        if (context->fd >= 0)
            close(context->fd);
        free(context->words);
        if (parent == NULL)
            return true;
        free(context);
        context = parent;
    }
    return false;
}

/* Whoever takes the root's last reference is alone with it: nobody else can be on the way to its lock. */
static void unlock_and_unref(struct root *root, struct lh_context *context)
{
    bool is_last = unref(context);

    pthread_mutex_unlock(&root->lock);
    if (is_last)
        free_root(root);
}

void lh_context_destroy(struct lh_context *context)
{
    if (context == NULL)
        return;
    pthread_mutex_lock(&context->root->lock);
    unlock_and_unref(context->root, context);
}

/* With the lock: is it over by itself, whatever is above it? Time only goes on, so what is over stays over. */
static bool is_over(const struct lh_context *context, int64_t now_us)
{
    return atomic_load(&context->is_cancelled) || now_us >= atomic_load(&context->deadline_us);
}

/* Its time may be moved at this moment; who has the lock knows. */
static bool is_surely_over(const struct lh_context *context, int64_t now_us)
{
    bool over;

    pthread_mutex_lock(&context->root->lock);
    over = is_over(context, now_us);
    pthread_mutex_unlock(&context->root->lock);
    return over;
}

bool lh_context_is_cancelled(const struct lh_context *context)
{
    int64_t now_us = 0;

    for (const struct lh_context *at = context; at != NULL; at = at->parent) {
        if (atomic_load(&at->is_cancelled))
            return true;
        if (atomic_load(&at->deadline_us) == LH_FOREVER)
            continue;
        if (now_us == 0)
            now_us = context->root->now_us();
        if (is_over(at, now_us) && is_surely_over(at, now_us))
            return true;
    }
    return false;
}

const char *lh_context_words(const struct lh_context *context)
{
    if (atomic_load(&context->is_cancelled))
        return context->words;
    return lh_context_is_cancelled(context) ? TIME_PASSED : "";
}

int64_t lh_context_remaining_us(const struct lh_context *context)
{
    int64_t least_us = LH_FOREVER;

    for (const struct lh_context *at = context; at != NULL; at = at->parent) {
        int64_t deadline_us = atomic_load(&at->deadline_us);
        if (deadline_us < least_us)
            least_us = deadline_us;
    }
    if (lh_context_is_cancelled(context))
        return 0;
    if (least_us == LH_FOREVER)
        return LH_FOREVER;
    least_us -= context->root->now_us();
    return least_us > 0 ? least_us : 0;
}

bool lh_context_move(struct lh_context *context, int64_t deadline_us)
{
    bool is_live;

    pthread_mutex_lock(&context->root->lock);
    is_live = !is_over(context, context->root->now_us());
    if (is_live && !context->is_free_of_time)
        atomic_store(&context->deadline_us, deadline_us);
    pthread_mutex_unlock(&context->root->lock);
    return is_live;
}

bool lh_context_moves(const struct lh_context *context)
{
    while (context != NULL && !context->moves)
        context = context->parent;
    return context != NULL;
}

void lh_context_free_of_time(struct lh_context *context)
{
    pthread_mutex_lock(&context->root->lock);
    context->is_free_of_time = true;
    if (!is_over(context, context->root->now_us()))
        atomic_store(&context->deadline_us, LH_FOREVER);
    pthread_mutex_unlock(&context->root->lock);
}

/* The next in a walk of the tree below `top`, parents first; `goes_down`: into the children of `at` too. */
static struct lh_context *walk(struct lh_context *top, struct lh_context *at, bool goes_down)
{
    if (goes_down && !lh_list_is_empty(&at->children))
        return LH_CONTAINER(struct lh_context, sibling, at->children.next);
    while (at != top) {
        if (at->sibling.next != &at->parent->children)
            return LH_CONTAINER(struct lh_context, sibling, at->sibling.next);
        at = at->parent;
    }
    return NULL;
}

/* One that is at once, and stays readable: nobody reads it. */
static void set_fd(int fd, int64_t left_us)
{
    struct itimerspec when = {0};

    when.it_value.tv_sec = left_us / LH_US_PER_S;
    when.it_value.tv_nsec = left_us % LH_US_PER_S * 1000;
    if (left_us <= 0)
        when.it_value.tv_nsec = 1;
    timerfd_settime(fd, 0, &when, NULL);
}

static void mark(struct lh_context *top, const char *words, struct lh_link *to_call)
{
    bool is_new = true;

    for (struct lh_context *at = top; at != NULL; at = walk(top, at, is_new)) {
        is_new = !atomic_load(&at->is_cancelled); /* else all below it was marked with it */
        if (!is_new)
            continue;
        at->words = lh_strdup(words);
        atomic_store(&at->is_cancelled, true);
        if (at->fd >= 0)
            set_fd(at->fd, 0);
        LH_LIST_EACH(struct waiting, waiting, &at->callbacks, link) {
            waiting->is_due = at;
            at->refs++;
        }
        lh_list_splice(to_call, &at->callbacks);
    }
}

/*
 * With the lock, which it gives up during the call, and a reference of the callback's to its context. The caller holds
 * one more in the same tree: the root is still there afterwards.
 */
static void call(struct root *root, struct lh_context_callback *callback)
{
    struct lh_context *context = waiting_of(callback)->context;
    struct run run = {.callback = callback, .thread = pthread_self()};

    lh_list_remove(&waiting_of(callback)->link);
    lh_list_append(&root->running, &run.link);
    pthread_mutex_unlock(&root->lock);
    callback->on_cancel(callback->arg, context);
    pthread_mutex_lock(&root->lock);
    lh_list_remove(&run.link);
    pthread_cond_broadcast(&root->is_done);
    unref(context);
}

void lh_context_cancel(struct lh_context *context, const char *words)
{
    struct root *root = context->root;
    struct lh_link to_call;

    lh_list_init(&to_call);
    pthread_mutex_lock(&root->lock);
    context->refs++;
    mark(context, words != NULL ? words : "it was cancelled", &to_call);
    while (!lh_list_is_empty(&to_call))
        call(root, callback_of(to_call.next));
    unlock_and_unref(root, context);
}

/* What a timer can be set for: times of leases move, and whoever moves them cancels the lease's context too. */
static int64_t fixed_deadline_us(const struct lh_context *context)
{
    int64_t least_us = LH_FOREVER;

    for (const struct lh_context *at = context; at != NULL; at = at->parent) {
        int64_t deadline_us = atomic_load(&at->deadline_us);
        if (!at->moves && deadline_us < least_us)
            least_us = deadline_us;
    }
    return least_us;
}

int lh_context_fd(struct lh_context *context)
{
    struct root *root = context->root;
    int64_t deadline_us = lh_context_is_cancelled(context) ? INT64_MIN : fixed_deadline_us(context);
    int fd;

    pthread_mutex_lock(&root->lock);
    if (context->fd < 0) {
        context->fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
        if (atomic_load(&context->is_cancelled))
            deadline_us = INT64_MIN; /* meanwhile */
        if (context->fd >= 0 && deadline_us != LH_FOREVER)
            set_fd(context->fd, deadline_us > root->now_us() ? deadline_us - root->now_us() : 0);
    }
    fd = context->fd;
    pthread_mutex_unlock(&root->lock);
    return fd;
}

void lh_context_add(struct lh_context *context, struct lh_context_callback *callback)
{
    struct root *root = context->root;
    struct waiting *waiting = waiting_of(callback);
    bool is_late = lh_context_is_cancelled(context);

    memset(callback->internal, 0, sizeof(callback->internal));
    waiting->context = context;
    pthread_mutex_lock(&root->lock);
    context->refs++;
    lh_list_append(&context->callbacks, &waiting->link);
    if (is_late || atomic_load(&context->is_cancelled)) {
        waiting->is_due = context;
        context->refs++;
        call(root, callback);
    }
    unlock_and_unref(root, context);
}

static bool is_running_elsewhere(const struct root *root, const struct lh_context_callback *callback)
{
    LH_LIST_EACH(struct run, run, &root->running, link) {
        if (run->callback == callback && !pthread_equal(run->thread, pthread_self()))
            return true;
    }
    return false;
}

void lh_context_remove(struct lh_context *context, struct lh_context_callback *callback)
{
    struct root *root = context->root;
    struct waiting *waiting = waiting_of(callback);

    pthread_mutex_lock(&root->lock);
    context->refs++;
    while (is_running_elsewhere(root, callback))
        pthread_cond_wait(&root->is_done, &root->lock);
    if (lh_link_is_linked(&waiting->link)) {
        lh_list_remove(&waiting->link);
        if (waiting->is_due != NULL)
            unref(context);
    }
    unlock_and_unref(root, context);
}
