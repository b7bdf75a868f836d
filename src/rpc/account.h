/*
 * Books of memory: each connection of a server has an account, and the server one for all of them. They count the
 * allocated bytes: headers and other metadata, requests that are not complete, replies that are not sent, and all
 * memory of nghttp2.
 */
#ifndef LH_RPC_ACCOUNT_H
#define LH_RPC_ACCOUNT_H

#include <stddef.h>

struct rpc_account {
    size_t bytes;
    struct rpc_account *whole; /* the account that it is a part of, or NULL */
};

/* Counts that memory of `before` bytes now has `now`. `account` NULL: does nothing. */
static inline void rpc_account_change(struct rpc_account *account, size_t before, size_t now)
{
    if (account == NULL || before == now)
        return;
    account->bytes += now - before;
    if (account->whole != NULL)
        account->whole->bytes += now - before;
}

#endif
