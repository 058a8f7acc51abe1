/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options: a verb's table and the options of every verb, read by getopt_long() in the order they come.
 */
#include "client/ctl/ctl.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/text.h"

#define OPTIONS_MAX 32
/* What getopt_long() returns for a verb's own options is this and the id, to be told from letters and global ones. */
#define OWN_BASE 0x1000

enum {
        GLOBAL_SOCKET = 0x800,
        GLOBAL_NO_SPAWN,
        GLOBAL_JSON,
        GLOBAL_TIMEOUT,
        GLOBAL_HELP,
        GLOBAL_VERSION,
};

const CtlOption ctl_global_options[] = {
        { GLOBAL_SOCKET, 0, "socket", "PATH", "the socket of foliod, instead of $FOLIO_SOCKET and the usual places" },
        { GLOBAL_NO_SPAWN, 0, "no-spawn", NULL, "where no foliod answers, start none" },
        { GLOBAL_JSON, 0, "json", NULL, "facts as JSON, with exact numbers" },
        { GLOBAL_TIMEOUT, 0, "timeout", "TIME",
          "bound on every wait for foliod to answer (`500ms`, `10s`, `2m`) [30s]" },
        { GLOBAL_HELP, 'h', "help", NULL, "say how it is used, and end" },
        { GLOBAL_VERSION, 0, "version", NULL, "say which version this is, and end" },
        { 0 },
};

typedef struct Parser {
        struct option longs[OPTIONS_MAX + 1];
        char letters[2 * OPTIONS_MAX + 3];
        size_t n_longs, n_letters;
} Parser;

static bool parser_has(const Parser *parser, const char *name)
{
        for (size_t i = 0; i < parser->n_longs; i++)
                if (strcmp(parser->longs[i].name, name) == 0)
                        return true;
        return false;
}

static void parser_add(Parser *parser, const CtlOption *options, int base)
{
        for (; options && options->name && parser->n_longs < OPTIONS_MAX; options++) {
                if (parser_has(parser, options->name))
                        continue;
                parser->longs[parser->n_longs++] = (struct option){
                        .name = options->name,
                        .has_arg = options->argument ? required_argument : no_argument,
                        .val = base + options->id,
                };
                if (options->letter) {
                        parser->letters[parser->n_letters++] = options->letter;
                        if (options->argument)
                                parser->letters[parser->n_letters++] = ':';
                }
        }
}

static int id_of_letter(const CtlOption *options, int letter)
{
        for (; options && options->name; options++)
                if (options->letter == letter)
                        return options->id;
        return 0;
}

/* Negative: the program ends with ctl->status; 0: go on. */
static int take_global(Ctl *ctl, int id, const char *argument)
{
        ctl->status = CTL_OK;
        switch (id) {
        case GLOBAL_SOCKET:
                ctl->socket_path = argument;
                return 0;
        case GLOBAL_NO_SPAWN:
                ctl->no_spawn = true;
                return 0;
        case GLOBAL_JSON:
                ctl->is_json = true;
                return 0;
        case GLOBAL_TIMEOUT:
                return ctl_take_timeout(ctl, "--timeout", argument, &ctl->timeout_ms) ? 0 : -1;
        case GLOBAL_HELP:
                ctl_print_usage(ctl->verb);
                return -1;
        case GLOBAL_VERSION:
                puts("folioctl " CTL_VERSION);
                return -1;
        default:
                ctl->status = CTL_USAGE;
                return -1;
        }
}

static const char *option_in_error(const Ctl *ctl)
{
        /* getopt_long() has moved on from a long option, not from a cluster of letters. */
        return optind > 0 && optind <= ctl->argc && ctl->argv[optind - 1][0] == '-' ? ctl->argv[optind - 1] : "?";
}

int ctl_next_option(Ctl *ctl, const char **ret_argument)
{
        const CtlOption *own = ctl->verb->options;
        Parser parser = { 0 };
        int r;

        /* `+`: the first argument ends the options; `:`: we tell what is wrong ourselves. */
        if (ctl->verb->is_command)
                parser.letters[parser.n_letters++] = '+';
        parser.letters[parser.n_letters++] = ':';
        parser_add(&parser, own, OWN_BASE);
        parser_add(&parser, ctl_global_options, 0);
        opterr = 0;
        for (;;) {
                r = getopt_long(ctl->argc, ctl->argv, parser.letters, parser.longs, NULL);
                if (r == -1) {
                        ctl->arguments = ctl->argv + optind;
                        ctl->n_arguments = ctl->argc - optind;
                        return 0;
                }
                if (r == ':') {
                        ctl_usage_error(ctl, "%s needs a value", option_in_error(ctl));
                        return -1;
                }
                if (r == '?') {
                        if (optopt > 0 && optopt < 0x80)
                                ctl_usage_error(ctl, "there is no option -%c", optopt);
                        else if (optopt)
                                ctl_usage_error(ctl, "%s takes no value", option_in_error(ctl));
                        else
                                ctl_usage_error(ctl, "there is no option %s", option_in_error(ctl));
                        return -1;
                }
                if (ret_argument)
                        *ret_argument = optarg;
                if (r >= OWN_BASE)
                        return r - OWN_BASE;
                if (r < 0x80 && id_of_letter(own, r))
                        return id_of_letter(own, r);
                if (take_global(ctl, r < 0x80 ? id_of_letter(ctl_global_options, r) : r, optarg) < 0)
                        return -1;
        }
}

bool ctl_check_arguments(Ctl *ctl, int n_min, int n_max)
{
        if (ctl->n_arguments >= n_min && ctl->n_arguments <= n_max)
                return true;
        if (ctl->n_arguments < n_min)
                ctl_usage_error(ctl, "an argument is missing: %s", ctl->verb->usage);
        else
                ctl_usage_error(ctl, "there is no use for the argument '%s'", ctl->arguments[n_max]);
        return false;
}

bool ctl_take_arguments(Ctl *ctl, int n_min, int n_max)
{
        if (ctl_next_option(ctl, NULL) < 0)
                return false;
        return ctl_check_arguments(ctl, n_min, n_max);
}

int ctl_usage_error(Ctl *ctl, const char *format, ...)
{
        const char *verb = ctl->verb->name;
        va_list arguments;

        fprintf(stderr, *verb ? "folioctl %s: " : "folioctl: ", verb);
        va_start(arguments, format);
        vfprintf(stderr, format, arguments);
        va_end(arguments);
        /* Of `help` itself there is little to say, and much of the others. */
        if (!*verb || strcmp(verb, "help") == 0)
                fputs("; `folioctl help` lists the verbs\n", stderr);
        else
                fprintf(stderr, "; `folioctl help %s` says how it is used\n", verb);
        ctl->status = CTL_USAGE;
        return CTL_USAGE;
}

bool ctl_take_size(Ctl *ctl, const char *what, const char *text, uint64_t *ret_bytes)
{
        if (text_parse_size(text, ret_bytes))
                return true;
        ctl_usage_error(ctl, "%s: '%s' is not a size; sizes are like 4096, 64M or 1.5G", what, text);
        return false;
}

bool ctl_take_duration(Ctl *ctl, const char *what, const char *text, uint64_t *ret_ns)
{
        if (text_parse_duration(text, ret_ns))
                return true;
        ctl_usage_error(ctl, "%s: '%s' is not a time; times are like 30, 500ms, 2m or 1.5h", what, text);
        return false;
}

bool ctl_take_timeout(Ctl *ctl, const char *what, const char *text, int *ret_ms)
{
        if (text_parse_timeout(text, ret_ms))
                return true;
        ctl_usage_error(ctl, "%s: '%s' is not a time; times are like 30, 500ms, 2m or forever", what, text);
        return false;
}

bool ctl_take_number(Ctl *ctl, const char *what, const char *text, uint64_t *ret)
{
        if (text_parse_number(text, ret))
                return true;
        ctl_usage_error(ctl, "%s: '%s' is not a number", what, text);
        return false;
}

static void print_options(const CtlOption *options)
{
        for (; options && options->name; options++) {
                char left[64], letter[8] = "    ";

                if (options->letter)
                        snprintf(letter, sizeof(letter), "-%c, ", options->letter);
                snprintf(left, sizeof(left), "%s--%s%s%s", letter, options->name, options->argument ? " " : "",
                         options->argument ? options->argument : "");
                printf("  %-32s %s\n", left, options->summary);
        }
}

void ctl_print_usage(const CtlVerb *verb)
{
        printf("usage: folioctl%s%s%s%s%s\n%s\n", *verb->name ? " " : "", verb->name,
               verb->options || !*verb->name ? " [OPTION...]" : "", *verb->usage ? " " : "", verb->usage, verb->summary);
        if (verb->options) {
                puts("");
                print_options(verb->options);
        }
        puts("\nOptions of every verb:");
        print_options(ctl_global_options);
}
