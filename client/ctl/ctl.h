/* SPDX-License-Identifier: Apache-2.0 */
/*
 * folioctl: what every verb shares. A verb is a line in the table of main.c and a run function; it takes its options
 * and arguments from here, its connection from here, and ends with one of four statuses.
 *
 * The tool sees a store as any program does, through <folio/...> alone: what it can do, everybody can.
 * Facts go to standard output, as a table or with --json as JSON; everything else goes to standard error.
 */
#ifndef CTL_CTL_H
#define CTL_CTL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <folio/folio.h>

enum {
        CTL_OK = 0,
        CTL_REFUSED = 1, /* the world said no */
        CTL_USAGE = 2, /* it can never be right as it was asked */
        CTL_NO_DAEMON = 3,
};

typedef struct Ctl Ctl;

/* An option of a verb; a table of them ends with a name of NULL. */
typedef struct CtlOption {
        int id; /* 1 and up; what ctl_next_option() returns */
        char letter; /* 0: none */
        const char *name;
        const char *argument; /* what the help calls it; NULL: it takes none */
        const char *summary;
} CtlOption;

typedef struct CtlVerb {
        const char *name;
        const char *usage; /* the arguments */
        const char *summary;
        const CtlOption *options; /* NULL: none of its own */
        bool is_command; /* what follows the first argument is not ours to read */
        int (*run)(Ctl *ctl);
} CtlVerb;

struct Ctl {
        const CtlVerb *verb;
        char **arguments; /* what is left when ctl_next_option() has returned 0 */
        int n_arguments;
        int status; /* of the parsing, where that ends the program */

        const char *socket_path; /* --socket */
        int timeout_ms; /* --timeout; 0: the library's */
        bool no_spawn;
        bool is_json;
        bool is_color; /* of standard output */
        struct folio_client *client; /* ctl_open() */

        int argc; /* not yet parsed */
        char **argv;
};

/* --- options ------------------------------------------------------------------------------------------------------ */

/*
 * The next option of the verb that runs: its id, and its argument in *@ret_argument. 0: no more, the arguments are in
 * ctl->arguments. Negative: the program is to end with ctl->status (a usage error was told, or help was asked for).
 * The options of every verb (--json, --socket, ...) are seen to on the way, also behind the verb.
 */
int ctl_next_option(Ctl *ctl, const char **ret_argument);

/* For a verb without options: from @n_min to @n_max arguments. False: told, end with ctl->status. */
bool ctl_take_arguments(Ctl *ctl, int n_min, int n_max);
/* The same after ctl_next_option() has returned 0. */
bool ctl_check_arguments(Ctl *ctl, int n_min, int n_max);

/* "folioctl put: <message>" and where help is to be had; sets and returns CTL_USAGE. */
int ctl_usage_error(Ctl *ctl, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Arguments of options; false: told, end with ctl->status. */
bool ctl_take_size(Ctl *ctl, const char *what, const char *text, uint64_t *ret_bytes);
bool ctl_take_duration(Ctl *ctl, const char *what, const char *text, uint64_t *ret_ns);
bool ctl_take_timeout(Ctl *ctl, const char *what, const char *text, int *ret_ms);
bool ctl_take_number(Ctl *ctl, const char *what, const char *text, uint64_t *ret);

/* What --help prints for @verb. */
void ctl_print_usage(const CtlVerb *verb);
/* Of every verb; a table that ends with a name of NULL. */
extern const CtlOption ctl_global_options[];

/* --- the store ---------------------------------------------------------------------------------------------------- */

/* Connects, once. CTL_OK, or the status to end with: told. */
int ctl_open(Ctl *ctl);

/*
 * "folioctl: cannot <what> <name>: <why, and what to do>", from @error and folio_strerror_full(), which must be of the
 * call that has just failed. @name can be NULL. Returns the status that goes with @error.
 */
int ctl_fail(Ctl *ctl, int error, const char *what, const char *name);

/* The same where it was not Folio that failed; CTL_REFUSED. */
int ctl_complain(Ctl *ctl, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* For what is worth saying and ends nothing. */
void ctl_note(Ctl *ctl, const char *format, ...) __attribute__((format(printf, 2, 3)));

int ctl_out_of_memory(Ctl *ctl);

/* `namespace:key` cut in two: the length of the namespace, 0 where there is no colon. */
size_t ctl_namespace_bytes(const char *name);

/* A number CLOCK_REALTIME has now. */
uint64_t ctl_now_ns(void);

/* --- ownership ---------------------------------------------------------------------------------------------------- */

#define _ctl_cleanup_(function) __attribute__((cleanup(function)))

static inline void ctl_cleanup_free(void *pointer)
{
        free(*(void **)pointer);
}

static inline void ctl_cleanup_fd(int *fd)
{
        if (*fd >= 0)
                (void)close(*fd);
}

/* Releases the handle; one that is unsealed is aborted with it. */
static inline void ctl_cleanup_object(struct folio_object **object)
{
        if (*object)
                (void)folio_object_release(*object);
}

#endif
