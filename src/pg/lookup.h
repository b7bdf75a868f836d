/*
 * The addresses of a host name, looked up by getaddrinfo in a thread of its own, because it blocks as long as the
 * resolver's time-outs allow.
 *
 *     lookup = lh_pg_lookup_start(loop, "db1.example", on_looked_up, host);
 *     ... on_looked_up(host, addresses, 2, "")
 */
#ifndef LH_PG_LOOKUP_H
#define LH_PG_LOOKUP_H

#include <stddef.h>

#define LH_PG_ADDRESS_BYTES 64
#define LH_PG_ADDRESSES_MAX 16

struct lh_loop;
struct lh_pg_lookup;

/* Gets the numeric addresses in getaddrinfo's order; or none, and the error in `words`. Ends the lookup; its memory
   lives until the callback returns. */
typedef void lh_pg_lookup_cb(void *arg, const char (*addresses)[LH_PG_ADDRESS_BYTES], size_t count, const char *words);

/* Starts a lookup; on_done comes exactly once, later. Returns NULL if the system has no thread or descriptor left. */
struct lh_pg_lookup *lh_pg_lookup_start(struct lh_loop *loop, const char *name, lh_pg_lookup_cb *on_done, void *arg);

/* Ends the lookup without on_done; the thread ends by itself. NULL does nothing. */
void lh_pg_lookup_abandon(struct lh_pg_lookup *lookup);

#endif
