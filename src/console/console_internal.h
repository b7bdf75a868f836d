/* The fields of the console. */
#ifndef LH_CONSOLE_CONSOLE_INTERNAL_H
#define LH_CONSOLE_CONSOLE_INTERNAL_H

#include "admin/http.h"
#include "base/list.h"
#include "console/console.h"
#include "console/session.h"
#include "loop/loop.h"

struct lh_console {
    struct lh_loop *loop;
    struct lh_rpc_server *server; /* NULL: none */
    const char *const *hosts;
    size_t host_count;
    struct session_table sessions;
    struct lh_link calls;
    struct lh_link streams;
    struct lh_console_stats stats;
};

#endif
