#include "cli/run_terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

void lh_run_terminal_remember(struct lh_run_terminal *terminal)
{
    terminal->file = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (terminal->file >= 0 &&
        (tcgetpgrp(terminal->file) != getpgrp() || tcgetattr(terminal->file, &terminal->modes) != 0)) {
        close(terminal->file);
        terminal->file = -1;
    }
}

void lh_run_terminal_restore(const struct lh_run_terminal *terminal)
{
    pid_t foreground;

    if (terminal->file < 0)
        return;
    foreground = tcgetpgrp(terminal->file);
    if (foreground > 0 && foreground != getpgrp() && kill(-foreground, 0) != 0 && errno == ESRCH &&
        tcsetpgrp(terminal->file, getpgrp()) == 0)
        foreground = getpgrp();
    if (foreground == getpgrp())
        tcsetattr(terminal->file, TCSADRAIN, &terminal->modes);
    close(terminal->file);
}
