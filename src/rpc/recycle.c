#include "rpc/recycle.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

/* Of each size: at most 4 MiB in all, what a few thousand calls at once have needed. */
#define KEPT_MAX 1024

static void *take(size_t size, void *arg)
{
    struct rpc_recycle *recycle = arg;
    size_t class = (size + RECYCLE_STEP_BYTES - 1) / RECYCLE_STEP_BYTES;
    struct recycled *block;

    if (class == 0 || class > RECYCLE_CLASSES)
        return malloc(size);
    block = recycle->blocks[class];
    if (block == NULL)
        return malloc(class * RECYCLE_STEP_BYTES);
    recycle->blocks[class] = block->next;
    recycle->counts[class]--;
    return block;
}

static void give(void *memory, void *arg)
{
    struct rpc_recycle *recycle = arg;
    struct recycled *block = memory;
    size_t class;

    if (memory == NULL)
        return;
    class = malloc_usable_size(memory) / RECYCLE_STEP_BYTES;
    if (class == 0 || class > RECYCLE_CLASSES || recycle->counts[class] == KEPT_MAX) {
        free(memory);
        return;
    }
    block->next = recycle->blocks[class];
    recycle->blocks[class] = block;
    recycle->counts[class]++;
}

static void *take_cleared(size_t count, size_t size, void *arg)
{
    size_t bytes;
    void *memory;

    if (__builtin_mul_overflow(count, size, &bytes))
        return NULL;
    if (bytes > RECYCLE_CLASSES * RECYCLE_STEP_BYTES)
        return calloc(count, size);
    memory = take(bytes, arg);
    return memory == NULL ? NULL : memset(memory, 0, bytes);
}

static void *take_larger(void *memory, size_t size, void *arg)
{
    return realloc(memory, size);
}

static void *count_taken(struct rpc_counted *counted, void *memory)
{
    if (memory != NULL)
        rpc_account_change(counted->account, 0, malloc_usable_size(memory));
    return memory;
}

static void *take_counted(size_t size, void *arg)
{
    struct rpc_counted *counted = arg;
    return count_taken(counted, take(size, counted->recycle));
}

static void *take_cleared_counted(size_t count, size_t size, void *arg)
{
    struct rpc_counted *counted = arg;
    return count_taken(counted, take_cleared(count, size, counted->recycle));
}

static void *take_larger_counted(void *memory, size_t size, void *arg)
{
    struct rpc_counted *counted = arg;
    size_t before = memory == NULL ? 0 : malloc_usable_size(memory);
    void *larger = realloc(memory, size);

    if (larger != NULL)
        rpc_account_change(counted->account, before, malloc_usable_size(larger));
    return larger;
}

static void give_counted(void *memory, void *arg)
{
    struct rpc_counted *counted = arg;

    if (memory != NULL)
        rpc_account_change(counted->account, malloc_usable_size(memory), 0);
    give(memory, counted->recycle);
}

void lh_rpc_counted_init(struct rpc_counted *counted, struct rpc_recycle *recycle, struct rpc_account *account)
{
    counted->recycle = recycle;
    counted->account = account;
    counted->mem = (nghttp2_mem){counted, take_counted, give_counted, take_cleared_counted, take_larger_counted};
}

void lh_rpc_recycle_init(struct rpc_recycle *recycle)
{
    memset(recycle, 0, sizeof(*recycle));
    recycle->mem = (nghttp2_mem){recycle, take, give, take_cleared, take_larger};
}

void lh_rpc_recycle_finish(struct rpc_recycle *recycle)
{
    for (size_t class = 0; class <= RECYCLE_CLASSES; class ++) {
        while (recycle->blocks[class] != NULL) {
            struct recycled *block = recycle->blocks[class];
            recycle->blocks[class] = block->next;
            free(block);
        }
    }
}
