/* hook list, add, remove: which SQL functions run when a lease changes. Only the database knows of them. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cli/arguments.h"
#include "cli/database.h"
#include "cli/error.h"
#include "cli/print.h"

static const char *const events[] = {"acquire", "heartbeat", "release_ok", "release_fail", "reap", NULL};

struct hook_command {
    struct lh_cli *cli;
    PGconn *session;
    const char *ns; /* "" is the root */
    const char *event;
    char *function; /* with its argument */
};

static const char *root_text(const char *ns)
{
    return ns[0] != '\0' ? ns : "(root)";
}

/* --- list --- */

static void print_table(const PGresult *hooks)
{
    struct lh_grid table = {.columns = 4};

    lh_grid_texts(&table, "NAMESPACE", "EVENT", "FUNCTION", "ADDED", NULL);
    for (int row = 0; row < PQntuples(hooks); row++) {
        lh_grid_texts(&table, root_text(lh_query_text(hooks, row, "namespace")), lh_query_text(hooks, row, "event"),
                      NULL);
        lh_grid_add(&table, "%s%s", lh_query_text(hooks, row, "function_name"),
                    lh_query_text(hooks, row, "exists")[0] == 't' ? "" : " (does not exist: vetoes every change)");
        lh_grid_texts(&table, LH_TIME_TEXT(lh_query_number(hooks, row, "added_at_s", 0)), NULL);
    }
    lh_grid_print(&table, stdout);
}

static void print_json(const PGresult *hooks)
{
    json_t *list = json_array();

    for (int row = 0; row < PQntuples(hooks); row++)
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:s, s:I, s:b}", "namespace", lh_query_text(hooks, row, "namespace"), "event",
                            lh_query_text(hooks, row, "event"), "function", lh_query_text(hooks, row, "function_name"),
                            "position", (json_int_t)lh_query_number(hooks, row, "position", 0), "exists",
                            lh_query_text(hooks, row, "exists")[0] == 't'));
    list = json_pack("{s:o}", "hooks", list);
    json_dumpf(list, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(list);
}

static enum lh_exit list(struct lh_cli *cli)
{
    static const char sql[] =
        "select h.namespace, h.event, h.function_name, h.position, h.function is not null as exists,"
        " extract(epoch from h.added_at)::bigint as added_at_s"
        "  from leasehold.hook h"
        " where $1::text is null or h.namespace in ('', $1) or starts_with($1, h.namespace || '.')"
        " order by h.namespace, h.event, h.position";
    const char *ns = cli->args.word_count > 1 ? cli->args.words[1] : NULL;
    struct lh_error error = {0};
    PGresult *hooks;

    if (ns != NULL && lh_check_namespace_or_root(ns, &error) != LH_OK)
        return lh_error_value(cli, &error);
    if (ns != NULL && strcmp(ns, ".") == 0)
        ns = "";
    hooks = lh_ask_database(cli, &(struct lh_ask){.sql = sql, .values = &ns, .value_count = 1});
    if (hooks == NULL)
        return cli->status;
    if (cli->output == LH_OUTPUT_JSON)
        print_json(hooks);
    else if (PQntuples(hooks) > 0)
        print_table(hooks);
    else
        fprintf(stderr, "no hooks\n");
    PQclear(hooks);
    return LH_EXIT_DONE;
}

/* --- add and remove --- */

static void on_notice(void *arg, const PGresult *notice)
{
    char line[LH_NOTICE_BYTES];

    lh_error_print("%s", lh_database_notice(notice, line));
}

/* A name that PostgreSQL before 16 cannot read; later ones answer null, as for one that they do not know. */
static enum lh_exit function_error(const struct hook_command *hook, const struct lh_error *error)
{
    const char *code = error->sqlstate;

    if (strncmp(code, "42", 2) == 0 && strcmp(code, "42501") != 0 && strstr(error->message, "leasehold") == NULL)
        return lh_error_usage(hook->cli->command, "the database has no function %s: %s", hook->function,
                              error->message);
    return lh_error_database(hook->cli, error);
}

/* The one boolean of the answer; 'n' for null. '\0': an error was printed. */
static char ask(const struct hook_command *hook, const char *sql, enum lh_exit *status)
{
    const char *const values[] = {hook->ns, hook->event, hook->function};
    struct lh_error error = {0};
    PGresult *result = lh_query(hook->session, sql, values, 3, &error);
    char answer;

    if (result == NULL) {
        *status = function_error(hook, &error);
        return '\0';
    }
    answer = PQgetisnull(result, 0, 0) ? 'n' : PQgetvalue(result, 0, 0)[0];
    PQclear(result);
    *status = LH_EXIT_DONE;
    return answer;
}

static enum lh_exit add(struct hook_command *hook)
{
    enum lh_exit status;
    char is_new = ask(hook,
                      "select case when to_regprocedure($3) is not null"
                      " then leasehold.add_hook($1, $2, to_regprocedure($3)) end",
                      &status);

    if (is_new == 'n')
        return lh_error_usage(hook->cli->command, "the database has no function %s", hook->function);
    if (is_new == 't')
        printf("%s: %s now runs at %s\n", root_text(hook->ns), hook->function, hook->event);
    else if (is_new == 'f')
        printf("%s: %s already runs at %s\n", root_text(hook->ns), hook->function, hook->event);
    return status;
}

static enum lh_exit remove_hook(struct hook_command *hook)
{
    enum lh_exit status;
    char is_gone = ask(hook,
                       "select case when to_regprocedure($3) is not null"
                       " then leasehold.remove_hook($1, $2, to_regprocedure($3))"
                       " else leasehold.remove_hook_named($1, $2, $3) end",
                       &status);

    if (is_gone == 't')
        printf("%s: %s no longer runs at %s\n", root_text(hook->ns), hook->function, hook->event);
    if (is_gone == 'f')
        return lh_error_print("%s has no hook %s for %s of its own", root_text(hook->ns), hook->function, hook->event);
    return status;
}

/* --- the words --- */

static enum lh_exit change(struct lh_cli *cli, enum lh_exit (*make)(struct hook_command *hook))
{
    const char **words = cli->args.words;
    struct hook_command hook = {.cli = cli, .ns = strcmp(words[1], ".") == 0 ? "" : words[1], .event = words[2]};
    struct lh_error error = {0};
    enum lh_exit status;
    size_t at;

    if (lh_check_namespace_or_root(hook.ns, &error) != LH_OK ||
        lh_check_word("event: ", hook.event, events, &at, &error) != LH_OK)
        return lh_error_value(cli, &error);
    hook.function = lh_format("%s%s", words[3], strchr(words[3], '(') != NULL ? "" : "(leasehold.lease_event)");
    status = lh_database_open(&hook.session, cli, LH_DATABASE_WRITE);
    if (status == LH_EXIT_DONE) {
        PQsetNoticeReceiver(hook.session, on_notice, NULL);
        status = make(&hook);
        PQfinish(hook.session);
    }
    free(hook.function);
    return status;
}

static enum lh_exit run_add(struct lh_cli *cli)
{
    return change(cli, add);
}

static enum lh_exit run_remove(struct lh_cli *cli)
{
    return change(cli, remove_hook);
}

const struct lh_command lh_command_hook = {
    .name = "hook",
    .summary = "show and change the SQL functions that leases call",
    .usage = (const char *const[]){"hook list [NAMESPACE] --database URL",
                                   "hook add NAMESPACE EVENT FUNCTION --database URL",
                                   "hook remove NAMESPACE EVENT FUNCTION --database URL", NULL},
    .description = "A hook is a function f(leasehold.lease_event) returns void. It runs in the\n"
                   "transaction in which a lease of the namespace, or of a namespace below it,\n"
                   "changes. An error that it raises vetoes the change. Its owner, and the role\n"
                   "that adds it, must be members of leasehold_owner. The events are acquire,\n"
                   "heartbeat, release_ok, release_fail and reap. A change of the hooks takes\n"
                   "effect at once, also in daemons.\n"
                   "\n"
                   "With a namespace, list prints the hooks that run there: its own and those of\n"
                   "its parents. The root is written '.'.\n",
    .examples = "  leasehold hook add payments reap public.put_back \\\n"
                "    --database postgresql:///leasehold\n"
                "  leasehold hook list payments.invoices\n",
    .verbs = (const struct lh_verb[]){{"list", 1, 2, "", list, NULL},
                                      {"add", 4, 4, "NAMESPACE EVENT FUNCTION", run_add, NULL},
                                      {"remove", 4, 4, "NAMESPACE EVENT FUNCTION", run_remove, NULL},
                                      {0}},
    .words_min = 1,
    .words_max = 4,
    .reach = LH_REACH_DATABASE,
};
