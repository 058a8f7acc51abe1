/* SPDX-License-Identifier: Apache-2.0 */
/* See bench-stop.h. */
#include "client/ctl/bench-stop.h"

#include <signal.h>
#include <stddef.h>

static const int deadly[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU };

static volatile sig_atomic_t caught;
static struct sigaction before[sizeof(deadly) / sizeof(deadly[0])];

static void on_signal(int signal_number)
{
        caught = signal_number;
}

void bench_stop_begin(void)
{
        /* SA_RESTART: no call that waits is to fail for it. */
        struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };

        sigemptyset(&action.sa_mask);
        caught = 0;
        for (size_t i = 0; i < sizeof(deadly) / sizeof(deadly[0]); i++) {
                /* Neither can fail for these signals. What nohup ignores stays ignored. */
                (void)sigaction(deadly[i], NULL, &before[i]);
                if (before[i].sa_handler != SIG_IGN)
                        (void)sigaction(deadly[i], &action, NULL);
        }
}

bool bench_stop_is_wanted(void)
{
        return caught != 0;
}

void bench_stop_end(void)
{
        for (size_t i = 0; i < sizeof(deadly) / sizeof(deadly[0]); i++)
                (void)sigaction(deadly[i], &before[i], NULL);
        if (caught)
                (void)raise(caught);
        caught = 0;
}
