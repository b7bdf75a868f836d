/* Control calls about spread namespaces: the rows that say which of their keys this database has. */
#include <string.h>

#include "store/store_internal.h"

#define SECTIONS_MAX 255

static struct lh_spread_row row_of(const PGresult *result, int row, const int at[6], struct lh_arena *arena)
{
    const char **sections = lh_arena_alloc(arena, SECTIONS_MAX * sizeof(*sections));
    size_t count = lh_pg_text_array(result, row, at[2], arena, sections, SECTIONS_MAX);
    struct lh_spread_row read = {.ns = lh_text_read(result, row, at[0], arena),
                                 .section = lh_text_read(result, row, at[1], arena),
                                 .sections = sections,
                                 .section_count = count < SECTIONS_MAX ? count : SECTIONS_MAX,
                                 .is_settled = lh_pg_bool(result, row, at[4]),
                                 .changed_at_us = lh_pg_timestamptz(result, row, at[5])};

    if (PQgetlength(result, row, at[3]) == LH_SPREAD_BYTES)
        memcpy(read.slots, PQgetvalue(result, row, at[3]), LH_SPREAD_BYTES);
    return read;
}

static void read_rows(struct control_call *call, enum lh_status status, const PGresult *result,
                      const struct lh_error *error)
{
    static const char *const names[] = {"namespace", "section", "sections", "slots", "settled", "changed_at"};
    lh_spread_read_cb *on_done = (lh_spread_read_cb *)call->on_done;
    struct lh_arena *arena = &call->store->arena;
    struct lh_spread_answer answer = {0};
    struct lh_spread_row *rows;
    int at[6];

    if (status != LH_OK) {
        on_done(call->arg, status, error, NULL);
        return;
    }
    lh_pg_result_columns(result, names, at, 6);
    answer.count = (size_t)PQntuples(result);
    rows = lh_arena_alloc(arena, (answer.count + 1) * sizeof(*rows));
    for (size_t i = 0; i < answer.count; i++)
        rows[i] = row_of(result, (int)i, at, arena);
    answer.rows = rows;
    on_done(call->arg, LH_OK, NULL, &answer);
}

enum lh_status lh_pg_store_read_spread(struct lh_store *base, int64_t read_us, lh_spread_read_cb *on_done, void *arg)
{
    static const struct lh_pg_statement statement = LH_PG_STATEMENT(
        "spread_get", "select * from leasehold_internal.spread_get($1, $2)", LH_PG_UUID, LH_PG_TIMESTAMPTZ);
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = lh_control_call_begin(store, read_rows, (void (*)(void))on_done, arg);

    lh_pg_add_uuid(&store->params, &base->coordinator);
    lh_pg_store_add_clock(&store->params, read_us);
    return lh_control_call_send(call, &statement);
}

enum lh_status lh_pg_store_claim_spread(struct lh_store *base, const struct lh_spread_claim *claim,
                                        lh_store_cb *on_done, void *arg)
{
    static const struct lh_pg_statement statement =
        LH_PG_STATEMENT("spread_claim", "select leasehold_internal.spread_claim($1, $2, $3, $4)", LH_PG_TEXT,
                        LH_PG_TEXT, LH_PG_TEXT_ARRAY, LH_PG_BOOL);
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = lh_control_call_begin(store, lh_control_call_done, (void (*)(void))on_done, arg);
    struct lh_pg_params *params = &store->params;

    lh_pg_add_text(params, claim->ns);
    lh_pg_add_text(params, claim->section);
    LH_PG_ARRAY(params, LH_PG_TEXT, claim->section_count, lh_pg_add_text(params, claim->sections[i]));
    lh_pg_add_bool(params, claim->settles);
    return lh_control_call_send(call, &statement);
}
