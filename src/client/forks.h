/*
 * A client in a child of the process that made it: its thread, connections and leases are the parent's, and its lock may stay taken.
 *
 *     client->forks = lh_client_count_forks();
 *     if (lh_client_is_forked(client))
 *         return lh_error_set(error, LH_CLOSED, "%s", lh_client_closed_words(client));
 */
#ifndef LH_CLIENT_FORKS_H
#define LH_CLIENT_FORKS_H

#include <stdbool.h>

struct lh_client;

/* Counts the forks between this process and the one that made the first client. Any thread. */
unsigned lh_client_count_forks(void);
bool lh_client_is_forked(const struct lh_client *client);

/* Returns the words of a call that finds the client closed. */
const char *lh_client_closed_words(const struct lh_client *client);

#endif
