/*
 * `leasehold run --terraform`: Terraform's and OpenTofu's `http` backend on loopback, for the command alone.
 *
 * The lease of the run is the lock: its holder may lock the state any number of times, and no other run gets that far.
 * So a killed run leaves no lock behind: its lease ends by its deadline. The state is Terraform's own affair, or a file
 * of ours, which is written while the lease is held and not after.
 *
 * Protocol: https://developer.hashicorp.com/terraform/language/backend/http. LOCK is sent as PUT and UNLOCK as DELETE,
 * which the backend lets its server choose.
 */
#ifndef LH_CLI_RUN_TERRAFORM_H
#define LH_CLI_RUN_TERRAFORM_H

#include <stdbool.h>

#include "leasehold.h"

struct lh_terraform;

/*
 * Binds a port, and sets TF_HTTP_* in this process's environment: the path in them is random, and is the password. Call
 * it before the first fork. `state`: the directory with terraform.tfstate; NULL: the state is elsewhere. Returns NULL
 * if an error was printed.
 */
struct lh_terraform *lh_terraform_open(const char *state);

/* Serves on a thread of its own while `lease` is held. Returns false with errno if there is no thread. */
bool lh_terraform_start(struct lh_terraform *terraform, struct lh_lease *lease);
void lh_terraform_stop(struct lh_terraform *terraform); /* does nothing before a start */
void lh_terraform_close(struct lh_terraform *terraform);

#endif
