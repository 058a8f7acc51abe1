/* SPDX-License-Identifier: Apache-2.0 */
/* folioctl: the table of verbs. See ctl.h. */
#include "client/ctl/ctl.h"

#include <errno.h>
#include <getopt.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/verbs.h"

static const CtlVerb verb_help;

static const CtlVerb *const verbs[] = {
        &verb_put,     &verb_replace, &verb_get,      &verb_cat,   &verb_ls,    &verb_stat,
        &verb_holders, &verb_rm,      &verb_truncate, &verb_wait,  &verb_watch, &verb_ns,
        &verb_status,  &verb_check,   &verb_run,      &verb_bench, &verb_help,
};

#define N_VERBS (sizeof(verbs) / sizeof(verbs[0]))

/* What stands before the verb. */
static const CtlVerb no_verb = {
        .name = "",
        .usage = "VERB [ARGUMENT...]",
        .summary = "folioctl puts objects into a Folio store, gets them out of it and shows what is in it.",
        .is_command = true,
};

static const CtlVerb *find_verb(const char *name)
{
        for (size_t i = 0; i < N_VERBS; i++)
                if (strcmp(verbs[i]->name, name) == 0)
                        return verbs[i];
        return NULL;
}

static void print_verbs(void)
{
        puts("\nVerbs:");
        for (size_t i = 0; i < N_VERBS; i++) {
                char left[96];

                snprintf(left, sizeof(left), "%s%s%s", verbs[i]->name, *verbs[i]->usage ? " " : "", verbs[i]->usage);
                if (strlen(left) <= 32)
                        printf("  %-32s %s\n", left, verbs[i]->summary);
                else
                        printf("  %s\n  %-32s %s\n", left, "", verbs[i]->summary);
        }
        puts("\nNames are `namespace:key`, or a key of the namespace `default`. Sizes are like 4096, 64M or 1.5G.\n"
             "Status: 0; 1 the world said no; 2 it was asked wrongly; 3 no foliod answers.\n"
             "More: folioctl(1), folio(7).");
}

static int help_run(Ctl *ctl)
{
        const CtlVerb *verb;

        if (!ctl_take_arguments(ctl, 0, 1))
                return ctl->status;
        if (ctl->n_arguments == 0) {
                ctl_print_usage(&no_verb);
                print_verbs();
                return CTL_OK;
        }
        verb = find_verb(ctl->arguments[0]);
        if (!verb)
                return ctl_usage_error(ctl, "there is no verb '%s'", ctl->arguments[0]);
        ctl_print_usage(verb);
        return CTL_OK;
}

static const CtlVerb verb_help = {
        .name = "help",
        .usage = "[VERB]",
        .summary = "say how it, or a verb, is used",
        .run = help_run,
};

/* Colours are for eyes: a terminal that has some, and nobody who said no. */
static bool wants_color(void)
{
        const char *no = getenv("NO_COLOR"), *terminal = getenv("TERM");

        return isatty(STDOUT_FILENO) && !(no && *no) && terminal && *terminal && strcmp(terminal, "dumb") != 0;
}

/* What fits on a screen, for who has forgotten. */
static int complain_of_no_verb(void)
{
        fputs("usage: folioctl [OPTION...] VERB [ARGUMENT...]\nverbs:", stderr);
        for (size_t i = 0; i < N_VERBS; i++)
                fprintf(stderr, " %s", verbs[i]->name);
        fputs("\n`folioctl help` says what they do, `folioctl help VERB` how one is used.\n", stderr);
        return CTL_USAGE;
}

/* The verb and what is behind it become ctl->argv. CTL_OK, or the status to end with. */
static int parse_before_verb(Ctl *ctl, int *ret_is_over)
{
        int id = ctl_next_option(ctl, NULL);

        *ret_is_over = 1;
        if (id < 0) {
                /* The only way to end well here is --help or --version; the former wants the verbs too. */
                if (ctl->status == CTL_OK && optind > 0 && strncmp(ctl->argv[optind - 1], "--v", 3) != 0)
                        print_verbs();
                return ctl->status;
        }
        if (ctl->n_arguments == 0)
                return complain_of_no_verb();
        ctl->argc = ctl->n_arguments;
        ctl->argv = ctl->arguments;
        ctl->arguments = NULL;
        ctl->n_arguments = 0;
        *ret_is_over = 0;
        return CTL_OK;
}

static int run_verb(Ctl *ctl)
{
        const char *name = ctl->argv[0];
        int r;

        ctl->verb = find_verb(name);
        if (!ctl->verb) {
                ctl->verb = &no_verb;
                return ctl_usage_error(ctl, "there is no verb '%s'", name);
        }
        /* 0 makes getopt_long() begin anew. */
        optind = 0;
        r = ctl->verb->run(ctl);
        folio_client_unref(ctl->client);
        return r;
}

int main(int argc, char **argv)
{
        Ctl ctl = { .verb = &no_verb, .argc = argc, .argv = argv, .is_color = wants_color() };
        int is_over, r;

        (void)setlocale(LC_CTYPE, "");
        r = parse_before_verb(&ctl, &is_over);
        if (!is_over)
                r = run_verb(&ctl);
        /* A disk that is full, or a reader that has gone: the latter needs no telling. */
        errno = 0;
        if ((fflush(stdout) != 0 || ferror(stdout)) && r == CTL_OK) {
                if (errno != EPIPE)
                        (void)ctl_complain(&ctl, "cannot write standard output: %s", strerror(errno ? errno : EIO));
                r = CTL_REFUSED;
        }
        return r;
}
