#include "stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "drive.h"

#define READ_BYTES (64 * 1024)

static void on_flush(void *arg)
{
    struct stream *stream = arg;

    while (stream->out_at < stream->out.size) {
        ssize_t written =
            send(stream->fd, stream->out.data + stream->out_at, stream->out.size - stream->out_at, MSG_NOSIGNAL);
        if (written < 0 && errno == EAGAIN) {
            lh_watch_want(&stream->watch, LH_WATCH_READ | LH_WATCH_WRITE);
            return;
        }
        if (written < 0)
            drive_die("send: %s", strerror(errno));
        stream->out_at += (size_t)written;
    }
    stream->out.size = stream->out_at = 0;
    lh_watch_want(&stream->watch, LH_WATCH_READ);
}

static void take(struct stream *stream)
{
    size_t used = stream->on_bytes(stream->arg, stream->in.data, stream->in.size);
    memmove(stream->in.data, stream->in.data + used, stream->in.size - used);
    stream->in.size -= used;
}

static void on_ready(void *arg, unsigned ready)
{
    struct stream *stream = arg;
    ssize_t size;

    if (ready & LH_WATCH_WRITE)
        on_flush(stream);
    if (!(ready & LH_WATCH_READ))
        return;
    size = recv(stream->fd, lh_buffer_reserve(&stream->in, READ_BYTES), READ_BYTES, 0);
    if (size < 0 && errno == EAGAIN)
        return;
    if (size <= 0)
        drive_die("the server has closed the connection: %s", size < 0 ? strerror(errno) : "end of the stream");
    stream->in.size += (size_t)size;
    take(stream);
}

/* A connected socket, or -1 when nobody listens. */
static int connect_to(const char *target)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    const char *colon = strrchr(target, ':');
    char host[64] = "";
    int fd;

    if (colon == NULL || (size_t)(colon - target) >= sizeof(host))
        drive_die("not HOST:PORT: %s", target);
    memcpy(host, target, (size_t)(colon - target));
    address.sin_port = htons((uint16_t)atoi(colon + 1));
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1)
        drive_die("not an address: %s", host);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        drive_die("socket: %s", strerror(errno));
    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    close(fd);
    return -1;
}

bool stream_is_answered(const char *target, const char *question, const char *answer)
{
    const struct timeval patience = {.tv_usec = 200 * 1000};
    char text[256];
    size_t size = strlen(answer);
    int fd = connect_to(target);
    bool is_answered;

    if (fd < 0)
        return false;
    is_answered = setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) == 0 &&
                  send(fd, question, strlen(question), MSG_NOSIGNAL) == (ssize_t)strlen(question) &&
                  recv(fd, text, sizeof(text), 0) >= (ssize_t)size && memcmp(text, answer, size) == 0;
    close(fd);
    return is_answered;
}

bool stream_open(struct stream *stream, struct lh_loop *loop, const char *target,
                 size_t (*on_bytes)(void *arg, const unsigned char *bytes, size_t size), void *arg)
{
    int yes = 1;

    memset(stream, 0, sizeof(*stream));
    stream->loop = loop;
    stream->on_bytes = on_bytes;
    stream->arg = arg;
    stream->fd = connect_to(target);
    if (stream->fd < 0)
        return false;
    if (fcntl(stream->fd, F_SETFL, O_NONBLOCK) != 0 ||
        setsockopt(stream->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)) != 0)
        drive_die("a socket's options: %s", strerror(errno));
    lh_deferred_init(&stream->flush, on_flush, stream);
    lh_watch_init(&stream->watch, loop, stream->fd, on_ready, stream);
    lh_watch_want(&stream->watch, LH_WATCH_READ);
    return true;
}

void stream_write(struct stream *stream, const void *bytes, size_t size)
{
    lh_buffer_append(&stream->out, bytes, size);
    lh_defer(stream->loop, &stream->flush);
}
