/* A connection of the server: what nghttp2 says of it, its timer, its end. */
#ifndef LH_RPC_SERVER_CONNECTION_H
#define LH_RPC_SERVER_CONNECTION_H

#include "rpc/server_internal.h"

struct server_connection {
    struct rpc_connection io;
    struct rpc_gate gate;
    struct rpc_account account;
    struct rpc_counted memory; /* of nghttp2 */
    struct lh_rpc_server *server;
    struct lh_link in_server;
    struct lh_link calls;
    struct lh_link borrowing;  /* calls whose message lies in the input that is being read */
    struct lh_link resuming;   /* calls whose held bytes are to be looked at */
    struct lh_link unfinished; /* calls that have begun a message and not ended it, the oldest first */
    struct lh_link answered;   /* calls whose answer was not taken yet, by when some of it was */
    struct lh_link asking;     /* calls that ask whether the peer is alive */
    struct source *source;     /* while its handshake is not finished; NULL: it is, or there is no address */
    struct lh_link in_source;
    struct lh_backlog_item handshake;
    struct lh_link securing;
    void *client;    /* see lh_rpc_call_set_client */
    char *principal; /* NULL: anonymous */
    struct lh_deferred resume;
    struct lh_timer timer; /* preface, idle, stall, ending */
    size_t call_count;
    uint32_t serial;       /* among the server's connections */
    int64_t asked_at_us;   /* when the PING of the calls that ask was sent; 0: none is on its way */
    int64_t pinged_at_us;  /* 0: no PING is on its way */
    int64_t idle_at_us;    /* when the last call ended */
    int64_t noticed_at_us; /* when it got GOAWAY because it is idle; 0: it did not */
    int64_t leaves_at_us;  /* when it gets GOAWAY: max_age, or before its certificate ends */
    int64_t ends_at_us;    /* its certificate */
    bool has_preface;
    bool is_going;        /* GOAWAY was sent */
    bool is_flooding;     /* its gate has sent it away */
    bool is_private;      /* a visitor that came in privately */
    bool has_asked_again; /* the answer to the PING before came late */
    char peer[RPC_ADDRESS_TEXT_BYTES];
};

struct server_connection *lh_rpc_server_accept(struct lh_rpc_server *server, int fd, const struct rpc_address *peer);
void lh_rpc_server_connection_free(struct server_connection *connection, enum lh_rpc_end reason, const char *why);
nghttp2_session_callbacks *lh_rpc_server_callbacks_create(void);
nghttp2_option *lh_rpc_server_session_options_create(void);

#endif
