#include "cli/run/run_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/error.h"

#define STATE_MAX_BYTES (256 * 1024 * 1024)
#define CONFLICT 409
#define LOCKED 423 /* RFC 4918, section 11.3 */

struct lh_terraform {
    int listener;
    int stop;              /* an eventfd */
    const char *directory; /* of the state; NULL: the lock alone is served */
    char *state;
    char *state_path; /* on the server; the lock's has "/lock" after it */
    char *lock_path;
    struct lh_lease *lease;
    bool is_started;
    pthread_t thread;
    struct event_base *base;
    /* What Terraform said when it locked, as JSON, and the ID in it. NULL: it is not locked. */
    char *lock;
    char *lock_id;
};

/* --- answers --- */

static void answer(struct evhttp_request *request, int code, const char *text, size_t size)
{
    struct evbuffer *body = evbuffer_new();

    if (body != NULL)
        evbuffer_add(body, text, size);
    evhttp_send_reply(request, code, NULL, body);
    if (body != NULL)
        evbuffer_free(body);
}

static void say(struct evhttp_request *request, int code, const char *words)
{
    lh_error_print("terraform: %s", words);
    answer(request, code, words, strlen(words));
}

/* Is the lease lost? Then the request has been answered. */
static bool is_refused(struct lh_terraform *terraform, struct evhttp_request *request)
{
    if (lh_lease_is_held(terraform->lease))
        return false;
    say(request, CONFLICT, "the lease of leasehold run is lost: another run may be working with this state");
    return true;
}

/* --- the lock --- */

static char *id_of(const char *text, size_t size)
{
    json_t *info = json_loadb(text, size, 0, NULL);
    const char *id = json_string_value(json_object_get(info, "ID"));
    char *copy = id != NULL && id[0] != '\0' ? lh_strdup(id) : NULL;

    json_decref(info);
    return copy;
}

static void forget_lock(struct lh_terraform *terraform)
{
    free(terraform->lock);
    free(terraform->lock_id);
    terraform->lock = terraform->lock_id = NULL;
}

static void lock(struct lh_terraform *terraform, struct evhttp_request *request, const char *text, size_t size,
                 char *id)
{
    if (is_refused(terraform, request)) {
        return;
    } else if (id == NULL) {
        say(request, HTTP_BADREQUEST, "a lock is a JSON object with an ID");
    } else if (terraform->lock != NULL && strcmp(terraform->lock_id, id) != 0) {
        answer(request, LOCKED, terraform->lock, strlen(terraform->lock));
    } else {
        forget_lock(terraform);
        terraform->lock = lh_format("%.*s", (int)size, text);
        terraform->lock_id = lh_strdup(id);
        answer(request, HTTP_OK, "", 0);
    }
}

static void unlock(struct lh_terraform *terraform, struct evhttp_request *request, const char *id)
{
    if (terraform->lock != NULL && id == NULL) { /* force-unlock of Terraform, whatever ID was typed */
        say(request, CONFLICT,
            "an unlock without the ID of the lock is refused, another Terraform of this run may have it: end that one; "
            "the lock ends with leasehold run");
        return;
    }
    if (terraform->lock != NULL && strcmp(terraform->lock_id, id) != 0) {
        answer(request, CONFLICT, terraform->lock, strlen(terraform->lock));
        return;
    }
    forget_lock(terraform);
    answer(request, HTTP_OK, "", 0);
}

static void on_lock(struct evhttp_request *request, void *arg)
{
    struct lh_terraform *terraform = arg;
    struct evbuffer *body = evhttp_request_get_input_buffer(request);
    size_t size = evbuffer_get_length(body);
    const char *text = (const char *)evbuffer_pullup(body, -1);
    char *id = id_of(text != NULL ? text : "", size);

    if (evhttp_request_get_command(request) == EVHTTP_REQ_PUT)
        lock(terraform, request, text, size, id);
    else if (evhttp_request_get_command(request) == EVHTTP_REQ_DELETE)
        unlock(terraform, request, id);
    else
        answer(request, HTTP_BADMETHOD, "", 0);
    free(id);
}

/* --- the state --- */

static void read_state(const struct lh_terraform *terraform, struct evhttp_request *request)
{
    struct evbuffer *body = evbuffer_new();
    struct stat info;
    int fd = open(terraform->state, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    if (body == NULL || (fd < 0 && errno != ENOENT) || (fd >= 0 && fstat(fd, &info) != 0)) {
        say(request, HTTP_INTERNAL, strerror(errno));
    } else if (fd < 0 || info.st_size == 0) {
        evhttp_send_reply(request, HTTP_NOCONTENT, NULL, NULL); /* there is none yet */
    } else if (evbuffer_add_file(body, fd, 0, info.st_size) != 0) {
        say(request, HTTP_INTERNAL, "the state cannot be read");
    } else {
        fd = -1; /* the buffer closes it */
        evhttp_send_reply(request, HTTP_OK, NULL, body);
    }
    if (fd >= 0)
        close(fd);
    if (body != NULL)
        evbuffer_free(body);
}

static bool write_all(int fd, struct evbuffer *body)
{
    while (evbuffer_get_length(body) > 0)
        if (evbuffer_write(body, fd) < 0)
            return false;
    return fsync(fd) == 0;
}

/* What has changed in the directory lasts. */
static bool sync_directory(const struct lh_terraform *terraform)
{
    int fd = open(terraform->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool is_synced = fd >= 0 && fsync(fd) == 0;
    int error = errno;

    if (fd >= 0)
        close(fd);
    errno = error;
    return is_synced;
}

/* A state is a JSON object: a file cut short, or an error page, must not take its place. */
static bool is_state(struct evbuffer *body)
{
    const char *text = (const char *)evbuffer_pullup(body, -1);
    json_t *state = json_loadb(text != NULL ? text : "", evbuffer_get_length(body), 0, NULL);
    bool is_object = json_is_object(state);

    json_decref(state);
    return is_object;
}

/* A whole new file takes the old one's place, or the old one stays. Its name is its own: a run that lost its lease while the
   disk was slow may still be at its file when the next one writes. */
static void write_state(struct lh_terraform *terraform, struct evhttp_request *request)
{
    struct evbuffer *body = evhttp_request_get_input_buffer(request);
    char *fresh;
    bool is_written;
    int fd, error;

    if (!is_state(body)) {
        say(request, HTTP_BADREQUEST, "the state is not a JSON object; the old one stays");
        return;
    }
    fresh = lh_format("%s.XXXXXX", terraform->state);
    fd = mkostemp(fresh, O_CLOEXEC); /* for its owner alone; it follows no link */
    is_written = fd >= 0 && write_all(fd, body);
    error = errno;

    if (fd >= 0)
        close(fd);
    if (!is_written) {
        say(request, HTTP_INTERNAL, strerror(error));
    } else if (!is_refused(terraform, request)) { /* looked at last: the disk may have been slow */
        if (rename(fresh, terraform->state) == 0 && sync_directory(terraform))
            answer(request, HTTP_OK, "", 0);
        else
            say(request, HTTP_INTERNAL, strerror(errno));
    }
    if (fd >= 0)
        unlink(fresh);
    free(fresh);
}

static void delete_state(struct lh_terraform *terraform, struct evhttp_request *request)
{
    if ((unlink(terraform->state) == 0 || errno == ENOENT) && sync_directory(terraform))
        answer(request, HTTP_OK, "", 0);
    else
        say(request, HTTP_INTERNAL, strerror(errno));
}

/* Terraform names the lock under which it writes. */
static bool is_other_lock(const struct lh_terraform *terraform, struct evhttp_request *request)
{
    struct evkeyvalq query = {0};
    const char *text = evhttp_uri_get_query(evhttp_request_get_evhttp_uri(request));
    const char *id =
        text != NULL && evhttp_parse_query_str(text, &query) == 0 ? evhttp_find_header(&query, "ID") : NULL;
    bool is_other = id != NULL && (terraform->lock_id == NULL || strcmp(terraform->lock_id, id) != 0);

    evhttp_clear_headers(&query);
    return is_other;
}

static void on_state(struct evhttp_request *request, void *arg)
{
    struct lh_terraform *terraform = arg;
    enum evhttp_cmd_type command = evhttp_request_get_command(request);

    if (command == EVHTTP_REQ_GET) {
        read_state(terraform, request);
    } else if (command != EVHTTP_REQ_POST && command != EVHTTP_REQ_DELETE) {
        answer(request, HTTP_BADMETHOD, "", 0);
    } else if (is_refused(terraform, request)) {
        return;
    } else if (is_other_lock(terraform, request)) {
        const char *holder = terraform->lock != NULL ? terraform->lock : "{}";
        answer(request, CONFLICT, holder, strlen(holder));
    } else if (command == EVHTTP_REQ_POST) {
        write_state(terraform, request);
    } else {
        delete_state(terraform, request);
    }
}

/* --- the server --- */

static void on_stop(evutil_socket_t fd, short what, void *arg)
{
    event_base_loopbreak(arg);
}

static void *serve(void *arg)
{
    struct lh_terraform *terraform = arg;
    struct evhttp *http = evhttp_new(terraform->base);
    struct event *stop = event_new(terraform->base, terraform->stop, EV_READ, on_stop, terraform->base);
    sigset_t pipe;

    if (http == NULL || stop == NULL)
        abort(); /* out of memory */
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE); /* a client that hangs up is no reason to end */
    pthread_sigmask(SIG_BLOCK, &pipe, NULL);
    evhttp_set_allowed_methods(http, EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_PUT | EVHTTP_REQ_DELETE);
    evhttp_set_max_body_size(http, STATE_MAX_BYTES);
    evhttp_set_cb(http, terraform->lock_path, on_lock, terraform);
    if (terraform->state != NULL)
        evhttp_set_cb(http, terraform->state_path, on_state, terraform);
    if (evhttp_accept_socket(http, fcntl(terraform->listener, F_DUPFD_CLOEXEC, 0)) != 0 || event_add(stop, NULL) != 0)
        abort();
    event_base_dispatch(terraform->base);
    event_free(stop);
    evhttp_free(http);
    return NULL;
}

bool lh_terraform_start(struct lh_terraform *terraform, struct lh_lease *lease)
{
    int error;

    terraform->lease = lease;
    terraform->base = event_base_new();
    if (terraform->base == NULL)
        return false;
    error = pthread_create(&terraform->thread, NULL, serve, terraform);
    if (error != 0) {
        event_base_free(terraform->base);
        errno = error;
        return false;
    }
    terraform->is_started = true;
    return true;
}

void lh_terraform_stop(struct lh_terraform *terraform)
{
    uint64_t one = 1;

    if (terraform == NULL || !terraform->is_started)
        return;
    if (write(terraform->stop, &one, sizeof(one)) != sizeof(one))
        abort();
    pthread_join(terraform->thread, NULL);
    if (read(terraform->stop, &one, sizeof(one)) != sizeof(one))
        abort();
    event_base_free(terraform->base);
    terraform->is_started = false;
    forget_lock(terraform);
}

/* A port that the system chooses; 0: errno. */
static unsigned listen_on_loopback(int *fd)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);

    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*fd < 0 || bind(*fd, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(*fd, 16) != 0 ||
        getsockname(*fd, (struct sockaddr *)&address, &size) != 0)
        return 0;
    return ntohs(address.sin_port);
}

static void set_variable(const char *name, unsigned port, const char *path)
{
    char *url = lh_format("http://127.0.0.1:%u%s", port, path);

    setenv(name, url, 1);
    free(url);
}

struct lh_terraform *lh_terraform_open(const char *state)
{
    struct lh_terraform *terraform = lh_alloc_zero(1, sizeof(*terraform));
    uint64_t secret[2];
    struct stat info;
    unsigned port = 0;

    terraform->listener = terraform->stop = -1;
    if (state != NULL && (stat(state, &info) != 0 || !S_ISDIR(info.st_mode))) {
        lh_error_print("--state %s is no directory that can be reached", state);
        lh_terraform_close(terraform);
        return NULL;
    }
    terraform->stop = eventfd(0, EFD_CLOEXEC);
    if (getrandom(secret, sizeof(secret), 0) == sizeof(secret) && terraform->stop >= 0)
        port = listen_on_loopback(&terraform->listener);
    if (port == 0) {
        lh_error_print("no port for Terraform's backend: %s", strerror(errno));
        lh_terraform_close(terraform);
        return NULL;
    }
    terraform->directory = state;
    if (state != NULL)
        terraform->state = lh_format("%s/terraform.tfstate", state);
    terraform->state_path = lh_format("/%016llx%016llx", (unsigned long long)secret[0], (unsigned long long)secret[1]);
    terraform->lock_path = lh_format("%s/lock", terraform->state_path);
    if (state != NULL)
        set_variable("TF_HTTP_ADDRESS", port, terraform->state_path);
    set_variable("TF_HTTP_LOCK_ADDRESS", port, terraform->lock_path);
    set_variable("TF_HTTP_UNLOCK_ADDRESS", port, terraform->lock_path);
    setenv("TF_HTTP_LOCK_METHOD", "PUT", 1);
    setenv("TF_HTTP_UNLOCK_METHOD", "DELETE", 1);
    return terraform;
}

void lh_terraform_close(struct lh_terraform *terraform)
{
    if (terraform == NULL)
        return;
    lh_terraform_stop(terraform);
    if (terraform->listener >= 0)
        close(terraform->listener);
    if (terraform->stop >= 0)
        close(terraform->stop);
    free(terraform->state);
    free(terraform->state_path);
    free(terraform->lock_path);
    free(terraform);
}
