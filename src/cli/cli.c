#include "cli/cli.h"

#include <libpq-fe.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cli/arguments.h"
#include "cli/error.h"
#include "client/endpoints.h"

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
    const char *format = lh_args_has(&cli->args, "json") ? "json" : lh_args_value(&cli->args, "output");

    if (format == NULL || strcmp(format, "text") == 0) {
        cli->output = LH_OUTPUT_TEXT;
    } else if (strcmp(format, "json") == 0) {
        cli->output = LH_OUTPUT_JSON;
    } else if (strcmp(format, "env") == 0 && cli->command == &lh_command_acquire) {
        cli->output = LH_OUTPUT_ENV;
    } else if (strcmp(format, "env") == 0) {
        lh_error_usage(cli->command, "-o env is for acquire only; %s has text and json", cli->command->name);
        return false;
    } else {
        lh_error_usage(cli->command, "unknown output format: %s; use text, json or env", format);
        return false;
    }
    return true;
}

/* Passwords must not be seen by ps(1): what the kernel shows is argv's own memory. */
static void hide(const char *argument)
{
    char *text = (char *)(uintptr_t)argument;
    memset(text, 'x', strlen(text));
}

static bool has_password(const char *url)
{
    PQconninfoOption *options = PQconninfoParse(url, NULL);
    bool has = options == NULL;

    for (const PQconninfoOption *o = options; o != NULL && o->keyword != NULL; o++)
        has |= strcmp(o->keyword, "password") == 0 && o->val != NULL;
    PQconninfoFree(options);
    return has;
}

/* libpq would take a URL of another scheme for the name of a database, or for a setting without a value. */
static bool has_wrong_scheme(const char *url)
{
    const char *end = strstr(url, "://");
    size_t size = end != NULL ? (size_t)(end - url) : 0;

    if (end == NULL || strspn(url, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.") != size)
        return false;
    return strncmp(url, "postgresql", size) != 0 || (size != 8 && size != 10);
}

static bool configure_database(struct lh_cli *cli, const char *given)
{
    if (given != NULL && cli->command->reach == LH_REACH_SERVER) {
        char *names = lh_commands_with_database();
        lh_error_usage(cli->command, "%s has no --database, it works with a server; --database is for %s",
                       cli->command->name, names);
        free(names);
        return false;
    }
    if (given == NULL && environment("LEASEHOLD_DATABASE") == NULL)
        return true;
    cli->database = lh_strdup(given != NULL ? given : environment("LEASEHOLD_DATABASE"));
    if (has_wrong_scheme(cli->database)) {
        lh_error_usage(cli->command, "'%.*s://' is not a scheme of PostgreSQL; --database takes postgresql://HOST/NAME",
                       (int)strcspn(cli->database, ":"), cli->database);
        return false;
    }
    if (given != NULL && has_password(given))
        hide(given);
    return true;
}

/* --database decides; then any server that was named; then the environment's database. */
static bool configure_endpoint(struct lh_cli *cli)
{
    const char *server = lh_args_value(&cli->args, "server");
    const char *database = lh_args_value(&cli->args, "database");

    if (server != NULL && server[0] == '\0') {
        lh_error_usage(cli->command, "--server is empty; it takes HOST:PORT or unix:PATH");
        return false;
    }
    if (!configure_database(cli, database))
        return false;
    if (server == NULL)
        server = environment("LEASEHOLD_SERVER");
    cli->uses_database = database != NULL || (cli->database != NULL && server == NULL);
    cli->server = server != NULL ? server : DEFAULT_SERVER;
    return true;
}

/* An option that means TLS, unless it is absent. */
static void configure_file(struct lh_cli *cli, const char *option, const char **file)
{
    const char *given = lh_args_value(&cli->args, option);

    if (given == NULL)
        return;
    *file = given;
    cli->tls.plaintext = false;
}

/* The command line, else the environment. */
static bool configure_tls(struct lh_cli *cli)
{
    struct lh_client_tls *tls = &cli->tls;
    const char *token_file = lh_args_value(&cli->args, "token-file");
    struct lh_error error = {0};

    if (lh_tls_from_environment(tls, &error) != LH_OK) {
        lh_error_usage(cli->command, "%s", error.message);
        return false;
    }
    if (lh_args_has(&cli->args, "tls"))
        tls->plaintext = false;
    configure_file(cli, "ca", &tls->ca_file);
    configure_file(cli, "crl", &tls->crl_file);
    configure_file(cli, "cert", &tls->cert_file);
    configure_file(cli, "key", &tls->key_file);
    configure_file(cli, "server-name", &tls->server_name);
    if (token_file != NULL)
        tls->token_file = token_file;
    if (tls->plaintext || (tls->cert_file == NULL) == (tls->key_file == NULL))
        return true;
    lh_error_usage(cli->command, "--cert and --key belong together: %s is missing",
                   tls->cert_file == NULL ? "--cert" : "--key");
    return false;
}

static bool needs_server(const struct lh_cli *cli)
{
    return cli->command->reach != LH_REACH_DATABASE && !cli->uses_database;
}

bool lh_cli_configure(struct lh_cli *cli)
{
    const char *timeout = lh_args_value(&cli->args, "timeout");
    struct lh_error error = {0};

    cli->timeout_us = DEFAULT_TIMEOUT_US;
    if (timeout != NULL && lh_check_duration("timeout", timeout, LH_US_PER_MS, &cli->timeout_us, &error) != LH_OK) {
        lh_error_value(cli, &error);
        return false;
    }
    return configure_output(cli) && configure_endpoint(cli) && (!needs_server(cli) || configure_tls(cli));
}
