#ifndef LH_CLI_REAP_SERVER_H
#define LH_CLI_REAP_SERVER_H

#include "cli/reap_pass.h"
#include "cli/server.h"

/* Calls Reap until no lease is due. Not DONE: an error was printed. */
enum lh_exit lh_reap_by_server(struct lh_reap_pass *pass, struct lh_server *server);

#endif
