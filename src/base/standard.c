/*
 * A description of a pipe or terminal may be shared with other processes, so O_NONBLOCK is not set on ours: each line opens one
 * of its own by way of /proc. poll() alone would not do: another writer may fill the pipe between poll() and write(), and a
 * terminal that has room for one byte is writable.
 */
#include "base/standard.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

void lh_standard_open(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDWR) != fd)
            _exit(EXIT_FAILURE);
    }
}

/* Where /proc does not help, as for the terminal of another user, the shared description is used as it is. */
static int open_own(mode_t mode)
{
    if (!S_ISFIFO(mode) && !S_ISCHR(mode))
        return STDERR_FILENO;
    int fd = open("/proc/self/fd/2", O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    return fd >= 0 || errno == ENXIO ? fd : STDERR_FILENO;
}

static ssize_t write_some(int fd, mode_t mode, const char *line, size_t size)
{
    return S_ISSOCK(mode) ? send(fd, line, size, MSG_DONTWAIT | MSG_NOSIGNAL) : write(fd, line, size);
}

bool lh_standard_error(const char *line, size_t size, int patience_ms)
{
    struct stat status;
    struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};

    if (fstat(STDERR_FILENO, &status) != 0)
        return false;
    if ((room.fd = open_own(status.st_mode)) < 0)
        return false; /* a pipe that nobody can read any more */
    ssize_t written = -1;
    if (poll(&room, 1, patience_ms) > 0)
        written = write_some(room.fd, status.st_mode, line, size);
    if (room.fd != STDERR_FILENO)
        close(room.fd);
    return written == (ssize_t)size;
}
