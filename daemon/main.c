/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foliod: arguments in, exit status out. Where a process of our own is to keep what must outlive the daemon, this one
 * becomes that process, and the daemon its child. 0: it ran and ended in order, or told what was asked; 1: it cannot
 * run; 2: the settings are wrong; 3: another foliod has the socket. (--check-config: 1 where the settings are wrong.)
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/daemon.h"
#include "daemon/service/keeper-process.h"
#include "daemon/service/log.h"

enum { EXIT_CANNOT_RUN = 1, EXIT_SETTINGS = 2, EXIT_RUNNING = 3 };

static bool has_argument(int argc, char **argv, const char *wanted)
{
        for (int i = 1; i < argc; i++)
                if (strcmp(argv[i], wanted) == 0)
                        return true;
        return false;
}

static int run(Config *config, int argc, char **argv)
{
        KeeperProcessConfig keeper = { argv, config->ready_fd, config->keeper_slots };
        Daemon *daemon;
        int r;

        if (daemon_is_kept_by_process(config)) {
                log_configure(config->log_level, config->log_target);
                return keeper_process_run(&keeper);
        }
        r = daemon_new(config, argc, argv, &daemon);
        if (r == 0) {
                r = daemon_run(daemon);
                daemon_free(daemon);
        }
        return r == 0 ? EXIT_SUCCESS : r == DAEMON_E_RUNNING ? EXIT_RUNNING : EXIT_CANNOT_RUN;
}

/*
 * A service manager is to start at once who was killed, and so it does with who cannot start, which it would have to do
 * over and over. It tells whom it has started itself: that one takes its time to end.
 */
static void take_time(void)
{
        const char *pid = getenv("SYSTEMD_EXEC_PID");

        if (pid && strtol(pid, NULL, 10) == (long)getpid())
                (void)sleep(1); /* cut short by a signal: so be it */
}

int main(int argc, char **argv)
{
        _cleanup_(cleanup_free) char *message = NULL;
        Config config = CONFIG_NULL;
        int r, status;

        r = config_read(&config, argc, argv, &message);
        if (r == 0) {
                status = run(&config, argc, argv);
        } else if (r == CONFIG_E_CHECKED || r == CONFIG_E_HELP) {
                if (r == CONFIG_E_CHECKED)
                        daemon_warn_of_settings(&config);
                status = fputs(message, stdout) >= 0 && fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_CANNOT_RUN;
        } else {
                fprintf(stderr, "foliod: error: %s\n", message ? message : strerror(-r));
                status = r < 0 || has_argument(argc, argv, "--check-config") ? EXIT_CANNOT_RUN : EXIT_SETTINGS;
        }
        config_deinit(&config);
        if (status != EXIT_SUCCESS)
                take_time();
        return status;
}
