#include "cli/command.h"

#include <string.h>

/* In the order in which somebody new meets them. */
const struct lh_command *const lh_commands[] = {
    &lh_command_acquire,       &lh_command_heartbeat,
    &lh_command_release,       &lh_command_run,
    &lh_command_list,          &lh_command_show,
    &lh_command_watch,         &lh_command_reap,
    &lh_command_force_release, &lh_command_policy,
    &lh_command_hook,          &lh_command_status,
    &lh_command_migrate,       NULL,
};

const struct lh_option lh_global_options[] = {
    {"server", 0, "ADDRESS",
     "Where leaseholdd listens: HOST:PORT or unix:PATH. Otherwise LEASEHOLD_SERVER, otherwise 127.0.0.1:7420."},
    {"database", 0, "URL",
     "Work on this database directly, without a daemon: reap, force-release, policy, hook and migrate can. Otherwise "
     "LEASEHOLD_DATABASE, where no server is named."},
    {"output", 'o', "FORMAT",
     "text (for people), json (the protocol's messages), or env (of acquire: lines for eval)."},
    {"timeout", 0, "DURATION", "How long to wait for an answer, beyond any --wait; 5s unless told."},
    {"help", 'h', NULL, "Explain, and do nothing."},
    {"version", 0, NULL, "Print the version, and do nothing."},
    {0},
};

const struct lh_command *lh_command_find(const char *name)
{
    for (size_t i = 0; lh_commands[i] != NULL; i++)
        if (strcmp(lh_commands[i]->name, name) == 0)
            return lh_commands[i];
    return NULL;
}
