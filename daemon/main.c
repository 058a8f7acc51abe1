/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foliod: arguments in, exit status out. 0: it ran and ended in order, or told what was asked; 1: it cannot run;
 * 2: the settings are wrong; 3: another foliod has the socket. (--check-config: 1 where the settings are wrong.)
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "daemon/daemon.h"

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
        Daemon *daemon;
        int r;

        r = daemon_new(config, argc, argv, &daemon);
        if (r == 0) {
                r = daemon_run(daemon);
                daemon_free(daemon);
        }
        return r == 0 ? EXIT_SUCCESS : r == DAEMON_E_RUNNING ? EXIT_RUNNING : EXIT_CANNOT_RUN;
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
        return status;
}
