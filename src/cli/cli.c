#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/bounds.h"
#include "cli/complain.h"

#define DEFAULT_SERVER "127.0.0.1:7420"
#define DEFAULT_TIMEOUT_US (5 * LH_US_PER_S)

/* An empty variable is as good as none. */
static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static bool configure_output(struct lh_cli *cli)
{
    const char *format = lh_args_value(&cli->args, "output");

    if (format == NULL || strcmp(format, "text") == 0) {
        cli->output = LH_OUTPUT_TEXT;
    } else if (strcmp(format, "json") == 0) {
        cli->output = LH_OUTPUT_JSON;
    } else if (strcmp(format, "env") == 0 && cli->command == &lh_command_acquire) {
        cli->output = LH_OUTPUT_ENV;
    } else if (strcmp(format, "env") == 0) {
        lh_complain_usage(cli->command, "-o env is for acquire; %s has text and json", cli->command->name);
        return false;
    } else {
        lh_complain_usage(cli->command, "-o %s: there are text, json and env", format);
        return false;
    }
    return true;
}

/* The flag of a database beats all; then any server that was named; then the environment's database. */
static bool configure_endpoint(struct lh_cli *cli)
{
    const char *server = lh_args_value(&cli->args, "server");
    const char *database = lh_args_value(&cli->args, "database");

    if (server != NULL && server[0] == '\0') {
        lh_complain_usage(cli->command, "--server is empty; it takes HOST:PORT or unix:PATH");
        return false;
    }
    if (database != NULL && !cli->command->takes_database) {
        lh_complain_usage(cli->command, "%s asks a server: it has no --database", cli->command->name);
        return false;
    }
    cli->uses_database = database != NULL;
    if (server == NULL)
        server = environment("LEASEHOLD_SERVER");
    if (database == NULL) {
        database = environment("LEASEHOLD_DATABASE");
        cli->uses_database = database != NULL && server == NULL;
    }
    cli->server = server != NULL ? server : DEFAULT_SERVER;
    cli->database = database;
    return true;
}

bool lh_cli_configure(struct lh_cli *cli)
{
    const char *timeout = lh_args_value(&cli->args, "timeout");
    struct lh_error error = {0};

    cli->timeout_us = DEFAULT_TIMEOUT_US;
    if (timeout != NULL && lh_check_duration("timeout", timeout, LH_US_PER_MS, &cli->timeout_us, &error) != LH_OK) {
        lh_complain_value(cli, &error);
        return false;
    }
    return configure_output(cli) && configure_endpoint(cli);
}
