/* SPDX-License-Identifier: Apache-2.0 */
/* See interrupt.h. */
#include "client/ctl/interrupt.h"

#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

static const int deadly[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXFSZ, SIGXCPU };

static const char *volatile guarded_path;
static struct sigaction before[sizeof(deadly) / sizeof(deadly[0])];

static void on_signal(int signal_number)
{
        const char *path = guarded_path;

        if (path)
                (void)unlink(path);
        /* SA_RESETHAND has put the default back; the signal is blocked until we return, and comes then. */
        (void)raise(signal_number);
}

void interrupt_guard(const char *path)
{
        struct sigaction action = { .sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND };

        sigfillset(&action.sa_mask);
        guarded_path = path;
        for (size_t i = 0; i < sizeof(deadly) / sizeof(deadly[0]); i++) {
                /* Neither can fail for these signals. What nohup ignores stays ignored. */
                (void)sigaction(deadly[i], NULL, &before[i]);
                if (before[i].sa_handler != SIG_IGN)
                        (void)sigaction(deadly[i], &action, NULL);
        }
}

void interrupt_release(void)
{
        for (size_t i = 0; i < sizeof(deadly) / sizeof(deadly[0]); i++)
                (void)sigaction(deadly[i], &before[i], NULL);
        guarded_path = NULL;
}
