/*
 * What surrounds the methods, by hand: RPC calls that remember what was answered, a coordinator that keeps requests
 * until the test answers them, a store that remembers what it was asked. They take the place of the real symbols.
 */
#ifndef LH_TEST_SERVICE_FAKES_H
#define LH_TEST_SERVICE_FAKES_H

#include <stdbool.h>

#include "lease/coordinator.h"
#include "lease/readiness.h"
#include "lease/reaping.h"
#include "lease/watch.h"
#include "rpc/server.h"
#include "test_service.h"

struct lh_service;

struct lh_rpc_call {
    void *arg;
    const struct lh_rpc_method *method;
    void *data;
    void *trace;
    uint64_t id;
    const char *principal; /* the test's; NULL: anonymous */
    unsigned connection;   /* the test's: 0 or 1 */
    bool is_finished;
    int code;
    enum lh_status reason; /* as the statistics would count it */
    char message[2048];
    struct lh_buffer details;
    struct lh_buffer sent; /* the last message */
    unsigned sent_count;
    bool is_paused;
    bool is_over_mark;         /* the test's: what is sent waits */
    bool is_full;              /* the test's: its connection keeps enough */
    const char *authorization; /* the test's; NULL: it came without */
    const char *forwarded_for; /* likewise */
    bool is_public;            /* the test's: strangers may read what it carries */
    size_t kept;
    size_t unsent; /* the test's */
    bool has_headers;
    bool is_peer_lost; /* the test's */
    bool is_asking;    /* whether the peer is alive; the test's to answer */
    int64_t alarm_us;
};

/* The connections of all calls are gone, or one. */
void fake_client_gone(struct lh_service *service);
void fake_connection_gone(struct lh_service *service, unsigned connection);

/* A call of this method, its headers there. */
struct lh_rpc_call *fake_call(struct lh_service *service, const char *path);
/* The same by this principal (NULL: anonymous), with this token header (NULL: none), on a connection of its own. */
struct lh_rpc_call *fake_call_by(struct lh_service *service, const char *path, const char *principal,
                                 const char *authorization);
void fake_call_message(struct lh_rpc_call *call, const ProtobufCMessage *message);
void fake_call_bytes(struct lh_rpc_call *call, const void *data, size_t size);
/* on_end; the call is gone then, as in the real server. */
void fake_call_end(struct lh_rpc_call *call, enum lh_rpc_end reason);
/* The reason in its ErrorInfo, or "". In the test's arena. */
const char *fake_call_reason(const struct lh_rpc_call *call);
/* The field of the first violation in its BadRequest, or "". */
const char *fake_call_field(const struct lh_rpc_call *call);
/* Its reply, unpacked into the test's arena. */
void *fake_call_reply(const struct lh_rpc_call *call, const ProtobufCMessageDescriptor *type);

struct lh_coordinator {
    struct lh_store *store;
    enum lh_status refuse; /* what acquire, heartbeat, release and watch return; LH_OK: they take it */
    struct lh_acquire *acquire;
    struct lh_acquire *canceled;
    struct lh_acquire *sent_back;
    struct lh_holder_request *heartbeat;
    struct lh_holder_request *release;
    struct lh_holder_request *downgrade;
    struct lh_reap_request *reap;
    char reap_ns[64];
    const char *reap_principal;
    struct lh_watcher *watcher;
    bool is_catching_up;
    unsigned wake_count;
    char woken[64]; /* the last key */
    struct lh_coordinator_stats stats;
    struct lh_readiness readiness;
    lh_rules_cb *on_rules;
    void *rules_arg;
    lh_spread_cb *on_spread;
    void *spread_arg;
    unsigned spread_reads;
    const char *lack;
    bool needs_rules;
};

struct fake_store {
    struct lh_store base;
    enum lh_status refuse;
    struct lh_server_facts server;
    void *arg; /* of the call that waits for its answer */
    lh_scope_cb *on_scope;
    lh_list_cb *on_list;
    lh_rows_cb *on_rows;
    char ns[256];
    char key[1100];
    char reason[64];
    char principal[64];
    char peer[64];
    int64_t token;
    int64_t after_token;
    bool all;
    int32_t max;
    size_t namespace_count;
    int64_t clock_us;
    char after_ns[256];
    char after_key[1100];
    int32_t page_size;
    size_t setting_count; /* of SetPolicy; the first one is kept */
    char setting[32];
    char value[32];
    bool include_children;
    unsigned audit_count;
    int64_t audit_sum;     /* of their counts */
    struct lh_audit audit; /* the last one; its count alone stays valid */
    lh_store_cb *on_claimed;
    void *claim_arg;
    char claimed[64]; /* the last claim: its section, and ! if it settles */
    unsigned claim_count;
    bool is_away; /* the test's */
};

void fake_store_init(struct fake_store *store);

#endif
