#include "cli/error.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/standard.h"
#include "cli/lease_text.h"
#include "cli/print.h"

#define GRANT_ADVICE "an administrator grants a right with: leasehold access grant PRINCIPAL %s RIGHT"

/* How long a message waits for a pipe or terminal that nobody reads: `run` has a lease to look after. */
#define PATIENCE_MS 100

static void print_va(const char *format, va_list arguments)
{
    char *clean = lh_clean_format(format, arguments);
    char *line = lh_format("leasehold: %s\n", clean);

    for (size_t at = 0, size = strlen(line), part; at < size; at += part) {
        part = size - at < LH_STANDARD_LINE_BYTES ? size - at : LH_STANDARD_LINE_BYTES;
        if (!lh_standard_error(line + at, part, PATIENCE_MS))
            break;
    }
    free(line);
    free(clean);
}

enum lh_exit lh_error_print(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_va(format, arguments);
    va_end(arguments);
    return LH_EXIT_FAILED;
}

enum lh_exit lh_error_usage(const struct lh_command *command, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    print_va(format, arguments);
    va_end(arguments);
    if (command != NULL)
        fprintf(stderr, "See: leasehold %s --help\n", command->name);
    else
        fprintf(stderr, "See: leasehold --help\n");
    return LH_EXIT_USAGE;
}

enum lh_exit lh_error_value(const struct lh_cli *cli, const struct lh_error *error)
{
    return lh_error_usage(cli->command, "%s", error->message);
}

enum lh_exit lh_exit_of_status(enum lh_status reason)
{
    switch (reason) {
    case LH_OK:
        return LH_EXIT_DONE;
    case LH_INVALID_ARGUMENT:
    case LH_MESSAGE_TOO_LARGE:
        return LH_EXIT_USAGE;
    case LH_LEASE_HELD:
    case LH_WAIT_TIMEOUT:
    case LH_BLOCKING_TIMEOUT:
    case LH_SCOPE_BUSY:
        return LH_EXIT_HELD;
    case LH_NOT_HELD:
    case LH_LEASE_ENDED:
    case LH_LOST:
        return LH_EXIT_LOST;
    case LH_DATABASE_UNAVAILABLE:
    case LH_SHUTTING_DOWN:
    case LH_OVERLOADED:
    case LH_TIMED_OUT:
    case LH_UNAVAILABLE:
        return LH_EXIT_UNAVAILABLE;
    default:
        return LH_EXIT_FAILED;
    }
}

static enum lh_exit exit_of_reply(const struct lh_reply *reply)
{
    if (reply->has_reason)
        return lh_exit_of_status(reply->reason);
    switch (reply->code) {
    case LH_GRPC_OK:
        return LH_EXIT_DONE;
    case LH_GRPC_INVALID_ARGUMENT:
        return LH_EXIT_USAGE;
    case LH_GRPC_NOT_FOUND:
        return LH_EXIT_LOST;
    case LH_GRPC_UNAVAILABLE:
    case LH_GRPC_DEADLINE_EXCEEDED:
        return LH_EXIT_UNAVAILABLE;
    default:
        return LH_EXIT_FAILED;
    }
}

/* The namespace that was given, as a shell takes it; a word where the command has none. A new string. */
static char *namespace_of(const struct lh_cli *cli)
{
    bool is_given = cli->command->verbs == NULL && cli->args.word_count > 0;
    return lh_shell_quote(is_given ? cli->args.words[0] : "NAMESPACE");
}

/* What to do about it, after a semicolon. A new string; "": the sentence says enough. */
static char *advice_for(const struct lh_cli *cli, const struct lh_reply *reply)
{
    char *ns = namespace_of(cli), *advice = NULL;
    const char *words = "";

    switch (reply->has_reason ? reply->reason : LH_OK) {
    case LH_LEASE_HELD:
        words = "; use --wait 30s to queue for it";
        break;
    case LH_SCOPE_BUSY:
        words = "; a transaction is open on it: try again, or find it in pg_stat_activity";
        break;
    case LH_LEASE_ENDED:
        words = "; a lease key names one acquisition: use a new one, or none";
        break;
    case LH_NAMESPACE_FROZEN:
        advice = lh_format("; an administrator thaws it with: leasehold policy set %s frozen=false", ns);
        break;
    case LH_ACCESS_DENIED:
        advice = lh_format("; " GRANT_ADVICE, ns);
        break;
    case LH_QUOTA_EXCEEDED:
        advice = lh_format("; the limits: leasehold policy show %s", ns);
        break;
    case LH_DATABASE_UNAVAILABLE:
    case LH_SHUTTING_DOWN:
    case LH_OVERLOADED:
        words = "; no lease is known to be lost; try again";
        break;
    default:
        if (!reply->has_reason && reply->code == LH_GRPC_UNIMPLEMENTED)
            words = "; the server is older than this command";
        break;
    }
    free(ns);
    return advice != NULL ? advice : lh_strdup(words);
}

/* No answer: name the server. */
static enum lh_exit silence_error(const struct lh_cli *cli, const struct lh_reply *reply)
{
    if (reply->code == LH_GRPC_UNAUTHENTICATED)
        lh_error_print("%s", reply->words);
    else if (reply->code == LH_GRPC_DEADLINE_EXCEEDED)
        lh_error_print("no answer from %s in time; --timeout allows more time", cli->server);
    else if (reply->delivery == LH_RPC_NOT_SENT)
        lh_error_print("%s; check that leaseholdd listens there, or name another server with --server", reply->words);
    else
        lh_error_print("the connection to %s broke before the answer: %s", cli->server, reply->words);
    return exit_of_reply(reply);
}

enum lh_exit lh_error_field(const struct lh_cli *cli, const char *field, const char *words)
{
    const char *value = lh_args_value(&cli->args, "duration");
    const char *ns = cli->args.word_count > 0 ? cli->args.words[0] : "";

    if (strcmp(field, "duration") != 0)
        lh_error_print("%s", words);
    else
        lh_error_print("duration %s: %s; to see the bounds: leasehold policy show %s; to change them, as an "
                       "administrator: leasehold policy set %s max_duration=VALUE (or min_duration)",
                       value != NULL ? value : "30s", words, ns, ns);
    return LH_EXIT_USAGE;
}

enum lh_exit lh_error_reply(const struct lh_cli *cli, const struct lh_reply *reply)
{
    char *advice;

    if (reply->code == LH_GRPC_OK) {
        return lh_error_print("unexpected answer from %s; it is not a leaseholdd, or it is broken", cli->server);
    }
    /* The server has the same deadline as we: which of the two is heard first is chance. */
    if ((reply->delivery != LH_RPC_ANSWERED && reply->code != LH_GRPC_INTERNAL) ||
        (reply->code == LH_GRPC_DEADLINE_EXCEEDED && !reply->has_reason))
        return silence_error(cli, reply);
    if (reply->has_reason && reply->reason == LH_INVALID_ARGUMENT && reply->field != NULL)
        return lh_error_field(cli, reply->field, reply->words);
    advice = advice_for(cli, reply);
    lh_error_print("%s%s", reply->words[0] != '\0' ? reply->words : lh_grpc_code_name((int)reply->code), advice);
    free(advice);
    if (reply->contention != NULL)
        lh_print_contention(stderr, reply->contention);
    return exit_of_reply(reply);
}

void lh_error_lost(Leasehold__V1__EndReason reason, const char *message, const char *advice)
{
    const char *colon = message[0] != '\0' ? ": " : "";

    if (reason == LEASEHOLD__V1__END_REASON__END_REASON_UNKNOWN ||
        reason == LEASEHOLD__V1__END_REASON__END_REASON_UNSPECIFIED)
        lh_error_print("this lease key does not hold the lease, or not any more%s%s; %s", colon, message, advice);
    else
        lh_error_print("the lease is lost (%s)%s%s; %s", lh_end_reason_text(reason), colon, message, advice);
}

void lh_error_outcome(enum lh_status status, const char *message, const char *undone, const char *advice)
{
    if (status == LH_INVALID_ARGUMENT)
        lh_error_print("%s", message);
    else if (status == LH_UNAVAILABLE)
        lh_error_print("%s%s%s; %s", undone, message[0] != '\0' ? ": " : "", message, advice);
    else
        lh_error_print("refused: %s", message);
}

/* Leasehold's own errors begin with the condition's name, because psql hides SQLSTATEs; a sentence needs none. */
static const char *without_condition(const struct lh_error *error)
{
    size_t size = strspn(error->message, "abcdefghijklmnopqrstuvwxyz_");

    if (strncmp(error->sqlstate, "LH", 2) == 0 && strncmp(error->message + size, ": ", 2) == 0)
        return error->message + size + 2;
    return error->message;
}

enum lh_exit lh_error_database(const struct lh_cli *cli, const struct lh_error *error)
{
    enum lh_exit status = lh_exit_of_status(error->status);
    const char *code = error->sqlstate;
    char *ns = namespace_of(cli);

    if (strcmp(code, "3F000") == 0 || strcmp(code, "42P01") == 0 || strcmp(code, "42883") == 0 ||
        strcmp(code, "42703") == 0)
        lh_error_print("this database has no schema leasehold, or an old one (%s): run leasehold migrate",
                       error->message);
    else if (strcmp(code, "LH007") == 0)
        lh_error_print("%s; " GRANT_ADVICE, without_condition(error), ns);
    else if (error->status == LH_ACCESS_DENIED && strcmp(cli->command->name, "migrate") == 0)
        lh_error_print("%s", error->message);
    else if (error->status == LH_ACCESS_DENIED)
        lh_error_print("%s; the role needs to be a member of %s", error->message,
                       strcmp(cli->command->name, "hook") == 0 ? "leasehold_owner" : "leasehold_admin");
    else if (error->status == LH_CANCELED)
        lh_error_print("%s; --timeout allows more time", error->message);
    else if (error->status == LH_DATABASE_UNAVAILABLE)
        lh_error_print("the database is unavailable: %s", error->message);
    else if (strncmp(code, "LH", 2) == 0 || error->status == LH_SCOPE_BUSY)
        lh_error_print("%s", without_condition(error));
    else
        lh_error_print("%s%s%s%s", error->message, code[0] != '\0' ? " (SQLSTATE " : "", code,
                       code[0] != '\0' ? ")" : "");
    if (error->status == LH_CANCELED)
        status = LH_EXIT_UNAVAILABLE;
    free(ns);
    return status;
}

/* Has seen enough, such as head: no reason for a word. */
static bool is_reader_gone(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

enum lh_exit lh_flush(enum lh_exit status)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    if (!is_reader_gone())
        lh_error_print("cannot write the output: %s", strerror(errno));
    clearerr(stdout); /* said once */
    return status == LH_EXIT_DONE ? LH_EXIT_FAILED : status;
}
