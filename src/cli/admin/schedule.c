/* schedule add, list, show, pause, resume, run-now, remove, import: the command, and schedules and their ticks as text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/admin/admin_internal.h"
#include "cli/arguments.h"
#include "cli/error.h"
#include "cli/lease_text.h"
#include "cli/server.h"
#include "json/print.h"

#define PAGE_SIZE 1000

static const char *const state_names[] = {"", "due", "running", "done", "failed", "dead", "missed", "skipped"};

/* --- text --- */

static const char *name_of(const char *const *names, size_t count, int value)
{
    return value >= 0 && (size_t)value < count ? names[value] : "?";
}

/* "2026-11-28T03:00:00Z", which is the key of its lease. */
static void add_instant(struct lh_grid *table, const Google__Protobuf__Timestamp *at)
{
    char text[LH_JSON_TIME_BYTES] = "";

    if (at != NULL)
        lh_json_timestamp(at->seconds, at->nanos, text);
    lh_grid_texts(table, text, NULL);
}

static void add_duration_row(struct lh_grid *card, const char *name, const Google__Protobuf__Duration *duration,
                             const char *if_none)
{
    char text[LH_DURATION_TEXT_BYTES];

    if (duration == NULL) {
        lh_grid_row(card, name, "%s", if_none);
        return;
    }
    lh_duration_format(lh_duration_us(duration), text);
    lh_grid_row(card, name, "%s", text);
}

static void add_time_row(struct lh_grid *card, const char *name, const Google__Protobuf__Timestamp *at)
{
    char text[LH_TIME_TEXT_BYTES];

    if (at == NULL)
        return;
    lh_time_format(at->seconds, text);
    lh_grid_row(card, name, "%s", text);
}

static void print_schedules(const struct lh_cli *cli, const void *answer)
{
    const Leasehold__V1__ListSchedulesResponse *response = answer;
    struct lh_grid table = {.columns = 8, .right = 0xe0u};

    if (response->n_schedules == 0) {
        fprintf(stderr, "no schedules\n");
        return;
    }
    lh_grid_texts(&table, "NAME", "EXPRESSION", "ZONE", "NEXT", "LAST DONE", "RUNNING", "MISSED", "DEAD", NULL);
    for (size_t i = 0; i < response->n_schedules; i++) {
        const Leasehold__V1__Schedule *schedule = response->schedules[i];
        char *name = lh_namespace_text(schedule->namespace_->segments, schedule->namespace_->n_segments);
        lh_grid_texts(&table, name, schedule->expression, schedule->time_zone, NULL);
        if (schedule->paused)
            lh_grid_texts(&table, "paused", NULL);
        else
            add_instant(&table, schedule->next_at);
        add_instant(&table, schedule->last_done_at);
        lh_grid_add(&table, "%lld", (long long)schedule->running);
        lh_grid_add(&table, "%lld", (long long)schedule->missed);
        lh_grid_add(&table, "%lld", (long long)schedule->dead);
        free(name);
    }
    lh_grid_print(&table, stdout);
}

static void print_settings(const Leasehold__V1__Schedule *schedule)
{
    struct lh_grid card = {.columns = 2};
    char *name = lh_namespace_text(schedule->namespace_->segments, schedule->namespace_->n_segments);

    lh_grid_row(&card, "schedule", "%s%s", name, schedule->paused ? " (paused)" : "");
    lh_grid_row(&card, "expression", "%s", schedule->expression);
    lh_grid_row(&card, "time zone", "%s", schedule->time_zone);
    add_time_row(&card, "starts", schedule->starts_at);
    add_time_row(&card, "ends", schedule->ends_at);
    if (schedule->catch_up == LEASEHOLD__V1__CATCH_UP__CATCH_UP_ALL)
        lh_grid_row(&card, "catch up", "all, at most %d", (int)schedule->catch_up_max);
    else
        lh_grid_row(&card, "catch up", "%s", name_of(lh_catch_up_names, 4, (int)schedule->catch_up));
    add_duration_row(&card, "missed after", schedule->tick_deadline, "the next instant");
    lh_grid_row(&card, "at once", "%d", (int)schedule->overlap);
    lh_grid_row(&card, "attempts", "%d", (int)schedule->attempts);
    add_duration_row(&card, "backoff", schedule->backoff, "0");
    if (schedule->jitter != NULL && lh_duration_us(schedule->jitter) > 0)
        add_duration_row(&card, "jitter", schedule->jitter, "0");
    if (schedule->trouble[0] != '\0')
        lh_grid_row(&card, "trouble", "%s", schedule->trouble);
    lh_grid_print(&card, stdout);
    free(name);
}

static const char *colour_of(size_t column, const char *cell)
{
    if (column != 1)
        return NULL;
    if (strcmp(cell, "MISSED") == 0 || strcmp(cell, "DEAD") == 0)
        return "31";
    return strcmp(cell, "failed") == 0 ? "33" : strcmp(cell, "running") == 0 ? "32" : NULL;
}

/* What there is to say about a tick, in one line. A new string. */
static char *note_of(const Leasehold__V1__Tick *tick)
{
    const char *by_hand = tick->by_hand ? "by hand; " : "";
    char until[LH_JSON_TIME_BYTES];

    if (tick->instants > 1 && tick->until_at != NULL) {
        lh_json_timestamp(tick->until_at->seconds, tick->until_at->nanos, until);
        return lh_format("%lld instants until %s", (long long)tick->instants, until);
    }
    if (tick->error[0] != '\0')
        return lh_format("%s%.*s", by_hand, (int)lh_utf8_cut(tick->error, strlen(tick->error), 200), tick->error);
    if (tick->result[0] != '\0')
        return lh_format("%s%.*s", by_hand, (int)lh_utf8_cut(tick->result, strlen(tick->result), 200), tick->result);
    return lh_strdup(tick->by_hand ? "by hand" : "");
}

/* Those that did not run, and will not, are in capitals: they stand out without colours too. */
static void add_tick(struct lh_grid *table, const Leasehold__V1__Tick *tick)
{
    bool is_bad = tick->state == LEASEHOLD__V1__TICK_STATE__TICK_STATE_MISSED ||
                  tick->state == LEASEHOLD__V1__TICK_STATE__TICK_STATE_DEAD;
    char took[LH_DURATION_TEXT_BYTES] = "";
    char *note = note_of(tick);

    add_instant(table, tick->at);
    if (is_bad)
        lh_grid_texts(table, tick->state == LEASEHOLD__V1__TICK_STATE__TICK_STATE_MISSED ? "MISSED" : "DEAD", NULL);
    else
        lh_grid_texts(table, name_of(state_names, 8, (int)tick->state), NULL);
    lh_grid_add(table, tick->attempt > 0 ? "%d" : "", (int)tick->attempt);
    lh_grid_add(table, tick->token > 0 ? "%lld" : "", (long long)tick->token);
    if (tick->started_at != NULL && tick->ended_at != NULL)
        lh_duration_format(lh_timestamp_us(tick->ended_at) - lh_timestamp_us(tick->started_at), took);
    lh_grid_texts(table, took, tick->owner, note, NULL);
    free(note);
}

static void print_shown(const struct lh_cli *cli, const void *answer)
{
    const Leasehold__V1__GetScheduleResponse *response = answer;
    struct lh_grid table = {.columns = 7, .right = 0x0cu};

    print_settings(response->schedule);
    printf("\nnext\n");
    for (size_t i = 0; i < response->n_next; i++) {
        char text[LH_JSON_TIME_BYTES];
        lh_json_timestamp(response->next[i]->seconds, response->next[i]->nanos, text);
        printf("  %s\n", text);
    }
    if (response->n_next == 0)
        printf("  none\n");
    printf("\nlast\n");
    if (response->n_ticks == 0) {
        printf("  none\n");
        return;
    }
    table.indent = "  ";
    table.colour = lh_terminal_has_colour(stdout) ? colour_of : NULL;
    lh_grid_texts(&table, "TICK", "STATE", "ATTEMPT", "TOKEN", "TOOK", "OWNER", "", NULL);
    for (size_t i = 0; i < response->n_ticks; i++)
        add_tick(&table, response->ticks[i]);
    lh_grid_print(&table, stdout);
}

/* --- calls --- */

/* Prints the answer by `print`, or as JSON. */
static enum lh_exit ask(const struct lh_cli *cli, ProtobufCMessage *request, struct lh_arena *arena,
                        void (*print)(const struct lh_cli *cli, const void *answer))
{
    struct lh_reply reply;
    enum lh_exit status;
    const void *answer = lh_schedule_call(cli, request, arena, &reply, &status);

    if (answer != NULL && !lh_print_json(cli, answer))
        print(cli, answer);
    lh_reply_finish(&reply);
    return status;
}

/* --- add, list, show --- */

/* An expression may be several words of the command line: every 10 min. A new string. */
static char *expression_of(const struct lh_args *args)
{
    char *expression = lh_strdup(args->words[2]);

    for (size_t i = 3; i < args->word_count; i++) {
        char *longer = lh_format("%s %s", expression, args->words[i]);
        free(expression);
        expression = longer;
    }
    return expression;
}

static enum lh_exit add(struct lh_cli *cli)
{
    char *expression = expression_of(&cli->args);
    enum lh_exit status = lh_schedule_set(cli, cli->args.words[1], expression, NULL);

    free(expression);
    return status;
}

static enum lh_exit list(struct lh_cli *cli)
{
    Leasehold__V1__ListSchedulesRequest request = LEASEHOLD__V1__LIST_SCHEDULES_REQUEST__INIT;
    const char *ns = cli->args.word_count > 1 ? cli->args.words[1] : "";
    struct lh_segments segments = {.count = 0};
    struct lh_arena arena = {0};
    struct lh_error error = {0};
    enum lh_exit status;

    if (lh_check_namespace_or_root(ns, &error) != LH_OK)
        return lh_error_value(cli, &error);
    lh_segments_split(&segments, ns);
    request.namespace_ = segments.list;
    request.n_namespace_ = segments.count;
    request.include_children = true;
    request.page_size = PAGE_SIZE;
    status = ask(cli, &request.base, &arena, print_schedules);
    lh_arena_finish(&arena);
    lh_segments_finish(&segments);
    return status;
}

static enum lh_exit show(struct lh_cli *cli, Leasehold__V1__Namespace *name, struct lh_arena *arena)
{
    Leasehold__V1__GetScheduleRequest request = LEASEHOLD__V1__GET_SCHEDULE_REQUEST__INIT;
    struct lh_error error = {0};

    if (lh_schedule_take_count(&cli->args, "next", &request.next, &error) != LH_OK ||
        lh_schedule_take_count(&cli->args, "last", &request.last, &error) != LH_OK)
        return lh_error_value(cli, &error);
    request.namespace_ = name;
    return ask(cli, &request.base, arena, print_shown);
}

/* --- pause, resume, run-now, remove --- */

static void print_paused(const struct lh_cli *cli, const void *answer)
{
    printf("%s is %s\n", cli->args.words[1], strcmp(cli->args.words[0], "pause") == 0 ? "paused" : "resumed");
}

static enum lh_exit pause_or_resume(struct lh_cli *cli, Leasehold__V1__Namespace *name, struct lh_arena *arena)
{
    Leasehold__V1__PauseScheduleRequest request = LEASEHOLD__V1__PAUSE_SCHEDULE_REQUEST__INIT;

    request.namespace_ = name;
    request.paused = strcmp(cli->args.words[0], "pause") == 0;
    return ask(cli, &request.base, arena, print_paused);
}

static void print_due(const struct lh_cli *cli, const void *answer)
{
    const Google__Protobuf__Timestamp *due = ((const Leasehold__V1__RunScheduleNowResponse *)answer)->at;
    char at[LH_JSON_TIME_BYTES] = "";

    if (due != NULL)
        lh_json_timestamp(due->seconds, due->nanos, at);
    printf("%s is due at %s\n", cli->args.words[1], at);
}

static enum lh_exit run_now(struct lh_cli *cli, Leasehold__V1__Namespace *name, struct lh_arena *arena)
{
    Leasehold__V1__RunScheduleNowRequest request = LEASEHOLD__V1__RUN_SCHEDULE_NOW_REQUEST__INIT;

    request.namespace_ = name;
    return ask(cli, &request.base, arena, print_due);
}

static enum lh_exit remove_schedule(struct lh_cli *cli, Leasehold__V1__Namespace *name, struct lh_arena *arena)
{
    Leasehold__V1__RemoveScheduleRequest request = LEASEHOLD__V1__REMOVE_SCHEDULE_REQUEST__INIT;
    const Leasehold__V1__RemoveScheduleResponse *response;
    struct lh_reply reply;
    enum lh_exit status;

    request.namespace_ = name;
    response = lh_schedule_call(cli, &request.base, arena, &reply, &status);
    if (response != NULL && !lh_print_json(cli, response) && response->removed)
        printf("%s is removed\n", cli->args.words[1]);
    if (response != NULL && !response->removed)
        status = lh_error_print("there is no schedule %s", cli->args.words[1]);
    lh_reply_finish(&reply);
    return status;
}

/* --- the words --- */

static enum lh_exit run_named(struct lh_cli *cli)
{
    const char *verb = cli->args.words[0], *name = cli->args.words[1];
    struct lh_segments segments = {.count = 0};
    struct lh_arena arena = {0};
    struct lh_error error = {0};
    enum lh_exit status;

    if (cli->args.word_count > 2)
        return lh_error_usage(cli->command, "unexpected argument: %s", cli->args.words[2]);
    if (lh_check_namespace(name, &error) != LH_OK)
        return lh_error_value(cli, &error);
    lh_segments_split(&segments, name);
    if (strcmp(verb, "show") == 0)
        status = show(cli, &segments.message, &arena);
    else if (strcmp(verb, "run-now") == 0)
        status = run_now(cli, &segments.message, &arena);
    else if (strcmp(verb, "remove") == 0)
        status = remove_schedule(cli, &segments.message, &arena);
    else
        status = pause_or_resume(cli, &segments.message, &arena);
    lh_arena_finish(&arena);
    lh_segments_finish(&segments);
    return status;
}

/* Options that belong to one subcommand. */
static const struct {
    const char *option;
    const char *verb;
} owners[] = {
    {"starts-at", "add"}, {"ends-at", "add"},  {"catch-up", "add"}, {"catch-up-max", "add"}, {"tick-deadline", "add"},
    {"overlap", "add"},   {"jitter", "add"},   {"attempts", "add"}, {"backoff", "add"},      {"next", "show"},
    {"last", "show"},     {"apply", "import"}, {"below", "import"}, {"system", "import"},
};

static enum lh_exit run(struct lh_cli *cli)
{
    const struct lh_args *args = &cli->args;
    const char *verb = args->words[0];
    bool is_add = strcmp(verb, "add") == 0, is_list = strcmp(verb, "list") == 0,
         is_import = strcmp(verb, "import") == 0;

    for (size_t i = 0; i < sizeof(owners) / sizeof(owners[0]); i++)
        if (lh_args_has(args, owners[i].option) && strcmp(owners[i].verb, verb) != 0)
            return lh_error_usage(cli->command, "--%s is for schedule %s only", owners[i].option, owners[i].verb);
    if (is_add && args->word_count < 3)
        return lh_error_usage(cli->command, "missing argument; usage: leasehold schedule add NAME EXPRESSION");
    if (!is_add && !is_list && args->word_count < 2)
        return lh_error_usage(cli->command, "missing argument; usage: leasehold schedule %s %s", verb,
                              is_import ? "CRONTAB" : "NAME");
    if ((is_list || is_import) && args->word_count > 2)
        return lh_error_usage(cli->command, "unexpected argument: %s", args->words[2]);
    if (is_add)
        return add(cli);
    if (is_list)
        return list(cli);
    return is_import ? lh_schedule_import(cli) : run_named(cli);
}

static const struct lh_option options[] = {
    {"time-zone", 0, "ZONE",
     "add: in which the expression is read, such as Europe/Berlin. Default: UTC. import: that of entries before the "
     "first CRON_TZ. Default: this machine's."},
    {"starts-at", 0, "TIME", "add: no tick before it; every N counts from it. As in 2026-11-28T03:00:00Z."},
    {"ends-at", 0, "TIME", "add: no tick after it."},
    {"catch-up", 0, "none|last|all",
     "add: which of several ticks run that have passed while no worker was there. Default: last."},
    {"catch-up-max", 0, "N", "add: with --catch-up all, at most so many, 1 to 1000. Default: 100."},
    {"tick-deadline", 0, "DURATION",
     "add: a tick that no worker claims for so long is missed. Default: when the next one is due."},
    {"overlap", 0, "N", "add: how many ticks may run at the same time, 1 to 1000. Default: 1."},
    {"jitter", 0, "DURATION", "add: each tick is due later by less than that. Default: 0."},
    {"attempts", 0, "N", "add: how often a tick is tried before it is dead, 1 to 1000. Default: 3."},
    {"backoff", 0, "DURATION", "add: how long after its first failure a tick is tried again. Default: 1m."},
    {"next", 0, "N", "show: how many of the next instants, 1 to 1000. Default: 5."},
    {"last", 0, "N", "show: how many of the last ticks, 1 to 1000. Default: 10."},
    {"apply", 0, NULL,
     "import: set the schedules; the server checks them. Without it import only says what it would do."},
    {"below", 0, "NAMESPACE", "import: the schedules' names begin with it. Default: cron."},
    {"system", 0, NULL,
     "import: the sixth field is a user, as in /etc/crontab. That file and /etc/cron.d need no word."},
    {0},
};

const struct lh_command lh_command_schedule = {
    .name = "schedule",
    .summary = "set, show and import schedules, whose ticks run once",
    .usage =
        (const char *const[]){"schedule add NAME EXPRESSION [--time-zone ZONE] [--catch-up all]",
                              "schedule list [NAMESPACE]", "schedule show NAME [--next 5] [--last 10]",
                              "schedule pause|resume|run-now|remove NAME", "schedule import CRONTAB [--apply]", NULL},
    .description = "A schedule has a name, which is a namespace, and an expression: five fields as\n"
                   "in crontab(5), @hourly and the like, or an elapsed time, such as every 10 min.\n"
                   "Each of its instants is a tick, which runs once, on one of the workers:\n"
                   "\n"
                   "  leasehold run --schedule NAME -- COMMAND\n"
                   "\n"
                   "Start as many workers as you like. A tick whose worker fails or dies is given\n"
                   "to the next one. A tick that no worker has claimed in time is missed: show\n"
                   "prints it in capitals, leaseholdd counts it.\n"
                   "\n"
                   "add sets all settings of a schedule: what is not named takes its default.\n"
                   "pause lets only ticks of run-now be claimed; what runs goes on.\n"
                   "\n"
                   "import reads a crontab, of a user or of the system, or - for standard input. It\n"
                   "prints a schedule and the worker's line for each entry, and why it cannot take\n"
                   "the others. The exit status is 1 if there is one that it cannot take. The server\n"
                   "reads the expressions: a wrong one is named with --apply, and the rest are set.\n",
    .options = options,
    .examples = "  leasehold schedule add reports.nightly '0 3 * * *' --time-zone Europe/Berlin\n"
                "  leasehold run --schedule reports.nightly -- /usr/local/bin/report\n"
                "  leasehold schedule add sync every 10 min --catch-up none --attempts 1\n"
                "  leasehold schedule show reports.nightly\n"
                "  crontab -l | leasehold schedule import -\n"
                "  leasehold schedule import /etc/crontab --apply\n",
    .verbs = (const char *const[]){"add", "list", "show", "pause", "resume", "run-now", "remove", "import", NULL},
    .words_min = 1,
    .words_max = -1,
    .reach = LH_REACH_EITHER,
    .run = run,
};
