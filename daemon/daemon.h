/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon as a whole: owns the loop and every module, in the order in which they need each other; starts them,
 * turns the loop, stops them in the opposite order. What it is told to do comes from a Config and from signals.
 */
#ifndef DAEMON_DAEMON_H
#define DAEMON_DAEMON_H

#include "daemon/service/config.h"

typedef struct Daemon Daemon;

enum {
        DAEMON_E_FAILED = 1,         /* it cannot start, and the log says why */
        DAEMON_E_RUNNING = 2,        /* another one runs already */
};

/*
 * Starts: when it returns 0, clients can connect. @config is taken over with success. @argc and @argv are read again
 * on SIGHUP, and outlive the daemon.
 */
int daemon_new(Config *consume_config, int argc, char **argv, Daemon **ret);

/* What a start would warn of, on stderr, and do about it in @config. */
void daemon_warn_of_settings(Config *config);

/* What keeps descriptors for the next foliod, by the settings and by who has started us; never AUTO. */
ConfigKeeper daemon_choose_keeper(const Config *config);

/* A process of our own is to do it, and it is not there yet. */
bool daemon_is_kept_by_process(const Config *config);

/* Until a signal, or the idle time, ends it. 0, or DAEMON_E_FAILED. */
int daemon_run(Daemon *daemon);
void daemon_free(Daemon *daemon);

#endif
