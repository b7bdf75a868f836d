/*
 * Books of memory: each connection of a server has an account, and the server one for all of them. What is counted is
 * what was allocated: headers and other metadata, requests that are not complete, replies that are not sent, and
 * everything that nghttp2 keeps.
 */
#ifndef LH_RPC_ACCOUNT_H
#define LH_RPC_ACCOUNT_H

#include <stddef.h>

struct rpc_account {
    size_t bytes;
    struct rpc_account *whole; /* what it is a part of, or NULL */
};

/* Memory of `before` bytes now has `now`. `account` NULL: nothing is counted. */
static inline void rpc_account_change(struct rpc_account *account, size_t before, size_t now)
{
    if (account == NULL || before == now)
        return;
    account->bytes += now - before;
    if (account->whole != NULL)
        account->whole->bytes += now - before;
}

#endif
