/* Words to the service manager (sd_notify(3)); nothing where there is none. */
#ifndef LH_DAEMON_NOTIFY_H
#define LH_DAEMON_NOTIFY_H

/* Such as "READY=1" or "STOPPING=1". */
void lh_notify(const char *state);

#endif
