/* schedule add, list, show, pause, resume, run-now, remove, import: the command, and schedules and their ticks as text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/admin/admin_internal.h"
#include "cli/arguments.h"
#include "cli/columns.h"
#include "cli/database.h"
#include "cli/error.h"
#include "cli/lease_text.h"
#include "cli/server.h"
#include "json/print.h"
#include "json/row_message.h"

#define TICKS                                                                                                          \
    "select t.schedule as namespace, t.state, t.attempts as attempt, t.token, t.owner,"                                \
    " (extract(epoch from t.at) * 1000000)::bigint as at,"                                                             \
    " (extract(epoch from t.due_at) * 1000000)::bigint as due_at,"                                                     \
    " (extract(epoch from t.next_try_at) * 1000000)::bigint as next_try_at,"                                           \
    " (extract(epoch from t.started_at) * 1000000)::bigint as started_at,"                                             \
    " (extract(epoch from t.ended_at) * 1000000)::bigint as ended_at,"                                                 \
    " (extract(epoch from t.until_at) * 1000000)::bigint as until_at,"                                                 \
    " t.result::text as result, t.error, t.instants, t.by_hand from leasehold.tick t"

#define SHOWN_NEXT 5
#define SHOWN_LAST 10

/* --- text --- */

/* "2026-11-28T03:00:00Z", which is the key of its lease. */
static void add_instant(struct lh_grid *table, const Google__Protobuf__Timestamp *at)
{
    lh_grid_texts(table, at != NULL ? LH_JSON_TIMESTAMP(at) : "", NULL);
}

static void add_duration_row(struct lh_grid *card, const char *name, const Google__Protobuf__Duration *duration,
                             const char *if_none)
{
    lh_grid_row(card, name, "%s", duration == NULL ? if_none : LH_DURATION_TEXT(lh_duration_us(duration)));
}

static void add_time_row(struct lh_grid *card, const char *name, const Google__Protobuf__Timestamp *at)
{
    if (at != NULL)
        lh_grid_row(card, name, "%s", LH_TIME_TEXT(at->seconds));
}

static void print_schedules(struct lh_cli *cli, const void *answer)
{
    static const struct lh_column columns[] = {
        {"NAME", "namespace", LH_COLUMN_NAMESPACE},
        {"EXPRESSION", "expression", LH_COLUMN_TEXT},
        {"ZONE", "time_zone", LH_COLUMN_TEXT},
        {"NEXT", "next_at", LH_COLUMN_NEXT},
        {"LAST DONE", "last_done_at", LH_COLUMN_INSTANT},
        {"RUNNING", "running", LH_COLUMN_COUNT},
        {"MISSED", "missed", LH_COLUMN_COUNT},
        {"DEAD", "dead", LH_COLUMN_COUNT},
        {0},
    };

    lh_columns_print_table(columns, answer, SIZE_MAX, "no schedules");
}

static void print_settings(const Leasehold__V1__Schedule *schedule, struct lh_arena *arena)
{
    const char *catch_up = lh_message_word(&leasehold__v1__catch_up__descriptor, (int)schedule->catch_up, arena);
    struct lh_grid card = {.columns = 2};
    const char *name = lh_namespace_text(schedule->namespace_->segments, schedule->namespace_->n_segments, arena);

    lh_grid_row(&card, "schedule", "%s%s", name, schedule->paused ? " (paused)" : "");
    lh_grid_row(&card, "expression", "%s", schedule->expression);
    lh_grid_row(&card, "time zone", "%s", schedule->time_zone);
    add_time_row(&card, "starts", schedule->starts_at);
    add_time_row(&card, "ends", schedule->ends_at);
    if (schedule->catch_up == LEASEHOLD__V1__CATCH_UP__CATCH_UP_ALL)
        lh_grid_row(&card, "catch up", "all, at most %d", (int)schedule->catch_up_max);
    else
        lh_grid_row(&card, "catch up", "%s", catch_up != NULL ? catch_up : "?");
    add_duration_row(&card, "missed after", schedule->tick_deadline, "the next instant");
    lh_grid_row(&card, "at once", "%d", (int)schedule->overlap);
    lh_grid_row(&card, "attempts", "%d", (int)schedule->attempts);
    add_duration_row(&card, "backoff", schedule->backoff, "0");
    if (schedule->jitter != NULL && lh_duration_us(schedule->jitter) > 0)
        add_duration_row(&card, "jitter", schedule->jitter, "0");
    if (schedule->trouble[0] != '\0')
        lh_grid_row(&card, "trouble", "%s", schedule->trouble);
    lh_grid_print(&card, stdout);
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

    if (tick->instants > 1 && tick->until_at != NULL)
        return lh_format("%lld instants until %s", (long long)tick->instants, LH_JSON_TIMESTAMP(tick->until_at));
    if (tick->error[0] != '\0')
        return lh_format("%s%.*s", by_hand, (int)lh_utf8_cut(tick->error, strlen(tick->error), 200), tick->error);
    if (tick->result[0] != '\0')
        return lh_format("%s%.*s", by_hand, (int)lh_utf8_cut(tick->result, strlen(tick->result), 200), tick->result);
    return lh_strdup(tick->by_hand ? "by hand" : "");
}

/* Those that did not run, and will not, are in capitals: they stand out without colours too. */
static void add_tick(struct lh_grid *table, const Leasehold__V1__Tick *tick, struct lh_arena *arena)
{
    const char *state = lh_message_word(&leasehold__v1__tick_state__descriptor, (int)tick->state, arena);
    bool is_bad = tick->state == LEASEHOLD__V1__TICK_STATE__TICK_STATE_MISSED ||
                  tick->state == LEASEHOLD__V1__TICK_STATE__TICK_STATE_DEAD;
    bool has_run = tick->started_at != NULL && tick->ended_at != NULL;
    char *note = note_of(tick);

    add_instant(table, tick->at);
    if (is_bad)
        lh_grid_texts(table, tick->state == LEASEHOLD__V1__TICK_STATE__TICK_STATE_MISSED ? "MISSED" : "DEAD", NULL);
    else
        lh_grid_texts(table, state != NULL ? state : "?", NULL);
    lh_grid_add(table, tick->attempt > 0 ? "%d" : "", (int)tick->attempt);
    lh_grid_add(table, tick->token > 0 ? "%lld" : "", (long long)tick->token);
    lh_grid_texts(table,
                  has_run ? LH_DURATION_TEXT(lh_timestamp_us(tick->ended_at) - lh_timestamp_us(tick->started_at)) : "",
                  tick->owner, note, NULL);
    free(note);
}

static void print_shown(struct lh_cli *cli, const void *answer)
{
    const Leasehold__V1__GetScheduleResponse *response = answer;
    struct lh_grid table = {.columns = 7, .right = 0x0cu};

    print_settings(response->schedule, &cli->arena);
    printf("\nnext\n");
    for (size_t i = 0; i < response->n_next; i++)
        printf("  %s\n", LH_JSON_TIMESTAMP(response->next[i]));
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
        add_tick(&table, response->ticks[i], &cli->arena);
    lh_grid_print(&table, stdout);
}

/* --- add, list, show --- */

/* An expression may be several words of the command line: every 10 min. */
static enum lh_exit add(struct lh_cli *cli)
{
    const char *expression = cli->args.words[2];

    for (size_t i = 3; i < cli->args.word_count; i++)
        expression = lh_arena_format(&cli->arena, "%s %s", expression, cli->args.words[i]);
    return lh_schedule_set(cli, cli->args.words[1], expression, NULL);
}

static enum lh_exit list(struct lh_cli *cli)
{
    Leasehold__V1__ListSchedulesRequest request = LEASEHOLD__V1__LIST_SCHEDULES_REQUEST__INIT;
    const char *ns = cli->args.word_count > 1 ? cli->args.words[1] : "";
    const char *below = strcmp(ns, ".") == 0 ? "" : ns;
    const Leasehold__V1__Namespace *in;
    struct lh_error error = {0};

    if (lh_check_namespace_or_root(ns, &error) != LH_OK)
        return lh_error_value(cli, &error);
    in = lh_take_namespace(ns, &cli->arena);
    request.namespace_ = in->segments;
    request.n_namespace_ = in->n_segments;
    request.include_children = true;
    return lh_ask_and_print(
        cli, &request.base,
        &(struct lh_ask){.sql = LH_SCHEDULES_SQL
                         " where $1 = '' or s.name = $1 or starts_with(s.name, $1 || '.') order by s.name",
                         .values = &below,
                         .value_count = 1},
        print_schedules);
}

/* Returns a new request about the schedule that was named; NULL: an error was printed. */
static void *named(struct lh_cli *cli, const ProtobufCMessageDescriptor *type)
{
    ProtobufCMessage *request = lh_message_new(type, &cli->arena);
    struct lh_error error = {0};

    if (lh_check_namespace(cli->args.words[1], &error) != LH_OK) {
        cli->status = lh_error_value(cli, &error);
        return NULL;
    }
    *(Leasehold__V1__Namespace **)lh_message_field(request, "namespace") =
        lh_take_namespace(cli->args.words[1], &cli->arena);
    return request;
}

/* The rows of a statement about a schedule, at most so many. */
static bool rows_of(struct lh_cli *cli, const char *sql, int32_t most, struct lh_rows *rows)
{
    const char *const values[] = {cli->args.words[1], lh_arena_format(&cli->arena, "%d", (int)most)};

    return lh_ask_rows(cli, &(struct lh_ask){.sql = sql, .values = values, .value_count = most > 0 ? 2 : 1}, rows);
}

static const void *get_by_database(struct lh_cli *cli, const Leasehold__V1__GetScheduleRequest *request)
{
    static const char instants[] =
        "select (extract(epoch from i) * 1000000)::bigint as at from leasehold.schedule s cross join lateral"
        " leasehold.schedule_instants(s.expression, s.time_zone,"
        " greatest(clock_timestamp(), s.starts_at - interval '1 s'), $2) i"
        " where s.name = $1 and not s.paused and (s.ends_at is null or i <= s.ends_at) order by i";
    struct lh_arena *arena = &cli->arena;
    Leasehold__V1__GetScheduleResponse *response =
        lh_message_new(&leasehold__v1__get_schedule_response__descriptor, arena);
    struct lh_rows rows;

    if (!rows_of(cli, LH_SCHEDULES_SQL " where s.name = $1", 0, &rows))
        return NULL;
    if (rows.row_count == 0) {
        cli->status = lh_error_print("there is no schedule %s", cli->args.words[1]);
        return NULL;
    }
    response->schedule = lh_row_message(&leasehold__v1__schedule__descriptor, &rows, 0, arena);
    if (!rows_of(cli, instants, request->next != 0 ? request->next : SHOWN_NEXT, &rows))
        return NULL;
    response->next = lh_arena_alloc(arena, (rows.row_count + 1) * sizeof(*response->next));
    for (; response->n_next < rows.row_count; response->n_next++)
        response->next[response->n_next] =
            lh_message_timestamp(strtoll(lh_rows_cell(&rows, response->n_next, "at"), NULL, 10), arena);
    if (!rows_of(cli, TICKS " where t.schedule = $1 order by t.at desc limit $2::bigint",
                 request->last != 0 ? request->last : SHOWN_LAST, &rows))
        return NULL;
    response->ticks = lh_arena_alloc(arena, (rows.row_count + 1) * sizeof(*response->ticks));
    for (; response->n_ticks < rows.row_count; response->n_ticks++)
        response->ticks[response->n_ticks] =
            lh_row_message(&leasehold__v1__tick__descriptor, &rows, response->n_ticks, arena);
    return response;
}

static enum lh_exit show(struct lh_cli *cli)
{
    static const struct lh_taken taken[] = {
        {.option = "next", .least = 1, .most = 1000}, {.option = "last", .least = 1, .most = 1000}, {0}};
    Leasehold__V1__GetScheduleRequest *request = named(cli, &leasehold__v1__get_schedule_request__descriptor);
    struct lh_error error = {0};
    const void *answer;

    if (request == NULL)
        return cli->status;
    if (lh_take_options(&cli->args, taken, &request->base, &cli->arena, &error) != LH_OK)
        return lh_error_value(cli, &error);
    answer = cli->uses_database ? get_by_database(cli, request)
                                : lh_ask(cli, &request->base, &(struct lh_ask){.kind = LH_ASK_READ});
    if (answer != NULL && !lh_print_json(cli, answer))
        print_shown(cli, answer);
    return cli->status;
}

/* --- pause, resume, run-now, remove --- */

static void print_paused(struct lh_cli *cli, const void *answer)
{
    printf("%s is %s\n", cli->args.words[1], strcmp(cli->args.words[0], "pause") == 0 ? "paused" : "resumed");
}

static enum lh_exit pause_or_resume(struct lh_cli *cli)
{
    Leasehold__V1__PauseScheduleRequest *request = named(cli, &leasehold__v1__pause_schedule_request__descriptor);

    if (request == NULL)
        return cli->status;
    request->paused = strcmp(cli->args.words[0], "pause") == 0;
    return lh_ask_and_print(cli, &request->base,
                            &(struct lh_ask){.kind = LH_ASK_AGAIN,
                                             .sql = request->paused ? "select leasehold.pause_schedule($1, true)"
                                                                    : "select leasehold.pause_schedule($1, false)",
                                             .values = cli->args.words + 1,
                                             .value_count = 1,
                                             .then = LH_SCHEDULES_SQL " where s.name = $1",
                                             .then_count = 1},
                            print_paused);
}

static void print_due(struct lh_cli *cli, const void *answer)
{
    const Google__Protobuf__Timestamp *due = ((const Leasehold__V1__RunScheduleNowResponse *)answer)->at;

    printf("%s is due at %s\n", cli->args.words[1], due != NULL ? LH_JSON_TIMESTAMP(due) : "");
}

/* Within a second a repeat finds the same tick; later it would make another one. */
static enum lh_exit run_now(struct lh_cli *cli)
{
    static const char sql[] =
        "select extract(epoch from leasehold.run_schedule_now($1))::bigint as seconds, 0 as nanos";
    ProtobufCMessage *request = named(cli, &leasehold__v1__run_schedule_now_request__descriptor);
    const struct lh_ask ask = {.kind = LH_ASK_ONCE, .sql = sql, .values = cli->args.words + 1, .value_count = 1};

    return request == NULL ? cli->status : lh_ask_and_print(cli, request, &ask, print_due);
}

static enum lh_exit remove_schedule(struct lh_cli *cli)
{
    static const char sql[] = "select leasehold.remove_schedule($1) as removed";
    ProtobufCMessage *request = named(cli, &leasehold__v1__remove_schedule_request__descriptor);
    const struct lh_ask ask = {.kind = LH_ASK_ONCE, .sql = sql, .values = cli->args.words + 1, .value_count = 1};
    const Leasehold__V1__RemoveScheduleResponse *response = request != NULL ? lh_ask(cli, request, &ask) : NULL;

    if (response != NULL && !lh_print_json(cli, response) && response->removed)
        printf("%s is removed\n", cli->args.words[1]);
    if (response != NULL && !response->removed)
        return lh_error_print("there is no schedule %s", cli->args.words[1]);
    return cli->status;
}

/* --- the command --- */

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
    .verbs =
        (const struct lh_verb[]){
            {"add", 3, 0, "NAME EXPRESSION", add,
             " starts-at ends-at catch-up catch-up-max tick-deadline overlap jitter attempts backoff "},
            {"list", 1, 2, "", list, NULL},
            {"show", 2, 2, "NAME", show, " next last "},
            {"pause", 2, 2, "NAME", pause_or_resume, NULL},
            {"resume", 2, 2, "NAME", pause_or_resume, NULL},
            {"run-now", 2, 2, "NAME", run_now, NULL},
            {"remove", 2, 2, "NAME", remove_schedule, NULL},
            {"import", 2, 2, "CRONTAB", lh_schedule_import, " apply below system "},
            {0}},
    .words_min = 1,
    .words_max = -1,
    .reach = LH_REACH_EITHER,
};
