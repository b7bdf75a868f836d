/* Control calls of the views: rows of text. */

#include "store/control.h"
#include "store/control_ops.h"

static void read_view(struct control_call *call, enum lh_status status, const PGresult *result,
                      const struct lh_error *error)
{
    lh_view_cb *on_done = (lh_view_cb *)call->on_done;
    struct lh_arena *arena = &call->store->arena;
    struct lh_view_answer answer = {0};
    const char **columns, **cells;
    size_t count = 0;

    if (status != LH_OK) {
        on_done(call->arg, status, error, NULL);
        return;
    }
    answer.has_more = PQntuples(result) > call->page_size;
    answer.row_count = (size_t)(answer.has_more ? call->page_size : PQntuples(result));
    answer.column_count = (size_t)PQnfields(result);
    columns = lh_arena_alloc(arena, (answer.column_count + 1) * sizeof(*columns));
    cells = lh_arena_alloc(arena, (answer.row_count * answer.column_count + 1) * sizeof(*cells));
    for (size_t column = 0; column < answer.column_count; column++)
        columns[column] = lh_arena_strdup(arena, PQfname(result, (int)column));
    for (size_t row = 0; row < answer.row_count; row++)
        for (size_t column = 0; column < answer.column_count; column++)
            cells[count++] = lh_text_read(result, (int)row, (int)column, arena);
    answer.columns = columns;
    answer.cells = cells;
    on_done(call->arg, LH_OK, NULL, &answer);
}

/* One row more than the page tells whether there is another. */
enum lh_status lh_pg_store_view(struct lh_store *base, const struct lh_view_request *request, lh_view_cb *on_done,
                                void *arg)
{
#define VIEW(name)                                                                                                     \
    {                                                                                                                  \
        "view_" name, "select * from leasehold_internal.view_" name "($1, $2, $3, $4, $5)", 5,                         \
        {                                                                                                              \
            LH_PG_TEXT_ARRAY, LH_PG_BOOL, LH_PG_TEXT, LH_PG_INT4, LH_PG_TEXT                                           \
        }                                                                                                              \
    }
    static const struct lh_pg_statement statements[LH_VIEW_COUNT] = {
        [LH_VIEW_NAMESPACES] = VIEW("namespaces"), [LH_VIEW_EXPLAIN] = VIEW("explain"),
        [LH_VIEW_QUEUE] = VIEW("queue"),           [LH_VIEW_WAITS] = VIEW("waits"),
        [LH_VIEW_HISTORY] = VIEW("history"),       [LH_VIEW_FAILURES] = VIEW("failures"),
        [LH_VIEW_AUDIT] = VIEW("audit"),           [LH_VIEW_DAEMONS] = VIEW("daemons"),
        [LH_VIEW_DATABASE] = VIEW("database"),
    };
#undef VIEW
    struct pg_store *store = pg_store_of(base);
    struct control_call *call = lh_control_call_begin(store, read_view, (void (*)(void))on_done, arg);
    struct lh_pg_params *params = &store->params;

    call->page_size = request->page_size;
    call->is_clients = true;
    LH_PG_ARRAY(params, LH_PG_TEXT, request->namespace_count, lh_pg_add_text(params, request->namespaces[i]));
    lh_pg_add_bool(params, request->include_children);
    lh_pg_add_text(params, request->key[0] == '\0' ? NULL : request->key);
    lh_pg_add_int4(params, request->page_size + 1);
    lh_pg_add_text(params, request->after[0] == '\0' ? NULL : request->after);
    return lh_control_call_send(call, &statements[request->view]);
}
