#ifndef LH_CLI_REAP_DATABASE_H
#define LH_CLI_REAP_DATABASE_H

#include "cli/database.h"
#include "cli/reap_pass.h"

/* Reaps every expired lease, in transactions of this session. Not DONE: an error was printed. */
enum lh_exit lh_reap_by_database(struct lh_reap_pass *pass, struct lh_session *session);

/* Prints a line for each named namespace that has no lease, policy or hook. */
void lh_reap_tell_unknown(const struct lh_reap_pass *pass, struct lh_session *session);

#endif
