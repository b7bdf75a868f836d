#include "cli/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define ROW(name) &lh_command_##name
const struct lh_command *const lh_commands[] = {LH_COMMANDS(ROW), NULL};

const struct lh_option lh_global_options[] = {
    {"server", 0, "ADDRESS",
     "Where leaseholdd listens: HOST:PORT, [IPv6]:PORT or unix:PATH. Several, separated by commas, are tried in turn. "
     "Default: LEASEHOLD_SERVER, or 127.0.0.1:7420."},
    {"database", 0, "URL",
     "Use this PostgreSQL database, without a daemon. Default: LEASEHOLD_DATABASE, if no server is named. A password "
     "in it "
     "is hidden from ps; a password file (~/.pgpass) is safer."},
    {"tls", 0, NULL,
     "Connect with TLS. Each of the next five means that too. Default: LEASEHOLD_TLS (yes or no). Unix sockets never "
     "speak TLS."},
    {"ca", 0, "FILE",
     "The authorities that may sign the server's certificate, PEM. Default: LEASEHOLD_CA, or those of the system."},
    {"crl", 0, "FILE",
     "A revocation list of each authority of --ca, PEM: a server whose certificate is in it is refused. Default: "
     "LEASEHOLD_CRL."},
    {"cert", 0, "FILE",
     "The certificate that is shown to the server, PEM, its chain behind it. Default: LEASEHOLD_CERT."},
    {"key", 0, "FILE",
     "The private key of --cert, PEM, without a passphrase. Default: LEASEHOLD_TLS_KEY, else LEASEHOLD_KEY beside "
     "LEASEHOLD_CERT."},
    {"server-name", 0, "NAME",
     "The name that the server's certificate must be for. Default: LEASEHOLD_SERVER_NAME, or the host of --server."},
    {"token-file", 0, "FILE",
     "A file with a bearer token, which is sent to the server with each call: over TLS, to unix sockets and to "
     "loopback "
     "addresses only. Default: LEASEHOLD_TOKEN_FILE."},
    {"output", 'o', "FORMAT", "text (for people), json (for programs), or env (acquire only: lines for eval)."},
    {"json", 0, NULL, "The same as -o json."},
    {"timeout", 0, "DURATION", "How long to wait for an answer, in addition to any --wait. Default: 5s."},
    {"help", 'h', NULL, "Print this help."},
    {"version", 0, NULL, "Print the version."},
    {0},
};

const struct lh_command *lh_command_find(const char *name)
{
    for (size_t i = 0; lh_commands[i] != NULL; i++)
        if (strcmp(lh_commands[i]->name, name) == 0)
            return lh_commands[i];
    return NULL;
}

const struct lh_verb *lh_command_verb(const struct lh_command *command, const char *word, struct lh_error *error)
{
    const char *names[16] = {NULL};
    char kind[64];
    size_t at;

    for (size_t i = 0; command->verbs[i].name != NULL && i < 15; i++)
        names[i] = command->verbs[i].name;
    snprintf(kind, sizeof(kind), "subcommand: %s ", command->name);
    return lh_check_word(kind, word, names, &at, error) == LH_OK ? &command->verbs[at] : NULL;
}

bool lh_command_takes(const struct lh_command *command, const struct lh_option *global)
{
    static const char *const of_servers[] = {"server", "tls", "ca", "crl", "cert", "key", "server-name", "token-file"};

    for (size_t i = 0; i < sizeof(of_servers) / sizeof(of_servers[0]); i++)
        if (strcmp(global->name, of_servers[i]) == 0)
            return command->reach != LH_REACH_DATABASE;
    return strcmp(global->name, "database") != 0 || command->reach != LH_REACH_SERVER;
}

char *lh_commands_with_database(void)
{
    const char *names[32] = {NULL};
    char *list = lh_strdup("");
    size_t count = 0;

    for (size_t i = 0; lh_commands[i] != NULL && count < 32; i++)
        if (lh_commands[i]->reach != LH_REACH_SERVER)
            names[count++] = lh_commands[i]->name;
    for (size_t i = 0; i < count; i++) {
        char *longer = lh_format("%s%s%s", list, i == 0 ? "" : i + 1 < count ? ", " : " and ", names[i]);
        free(list);
        list = longer;
    }
    return list;
}
