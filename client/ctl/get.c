/* SPDX-License-Identifier: Apache-2.0 */
/*
 * get and cat. A regular file is written under another name beside the one asked for and then takes its place: no
 * half file is ever seen, whatever ends us. Pipes and devices are written as they are.
 */
#include "client/ctl/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "client/ctl/interrupt.h"
#include "client/ctl/transfer.h"
#include "client/ctl/verbs.h"

#define PIPE_BYTES (1 << 20)
#define LENGTH_ALL UINT64_MAX

enum {
        GET_WAIT = 1,
        GET_OFFSET,
        GET_LENGTH,
};

static const CtlOption options[] = {
        { GET_WAIT, 'w', "wait", "TIME", "wait so long for it to be there and sealed (`10s`, `forever`) [not at all]" },
        { GET_OFFSET, 0, "offset", "SIZE", "begin there" },
        { GET_LENGTH, 0, "length", "SIZE", "so many bytes" },
        { 0 },
};

typedef struct Get {
        int timeout_ms;
        uint64_t offset_bytes;
        uint64_t n_bytes; /* LENGTH_ALL: to the end */
} Get;

/* A file that is being written under another name. */
typedef struct Target {
        int fd;
        char *path; /* NULL: what is written is written */
        char *temporary_path;
} Target;

static void target_deinit(Target *target)
{
        ctl_cleanup_fd(&target->fd);
        if (target->temporary_path) {
                (void)unlink(target->temporary_path);
                interrupt_release();
        }
        free(target->temporary_path);
        free(target->path);
}

static int target_complain(Ctl *ctl, const char *path)
{
        return ctl_complain(ctl, "cannot write %s: %s", path, strerror(errno));
}

static int target_open_temporary(Ctl *ctl, Target *target, const char *path, mode_t mode)
{
        mode_t mask;

        /* Where it is a link, what it points at is replaced. */
        target->path = realpath(path, NULL);
        if (!target->path)
                target->path = strdup(path);
        if (!target->path || asprintf(&target->temporary_path, "%s.folio-XXXXXX", target->path) < 0) {
                target->temporary_path = NULL;
                return ctl_out_of_memory(ctl);
        }
        target->fd = mkostemp(target->temporary_path, O_CLOEXEC);
        if (target->fd < 0) {
                free(target->temporary_path);
                target->temporary_path = NULL;
                return target_complain(ctl, path);
        }
        interrupt_guard(target->temporary_path);
        mask = umask(0);
        (void)umask(mask);
        if (fchmod(target->fd, mode ? mode & 07777 : 0666 & ~mask) < 0)
                return target_complain(ctl, path);
        return CTL_OK;
}

static int target_open(Ctl *ctl, Target *target, const char *path)
{
        struct stat st;

        if (strcmp(path, "-") == 0) {
                target->fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
                if (target->fd < 0)
                        return target_complain(ctl, "standard output");
                /* Of a pipe; where it is none, or may not be so large, it works as it is. */
                (void)fcntl(target->fd, F_SETPIPE_SZ, PIPE_BYTES);
                return CTL_OK;
        }
        if (stat(path, &st) < 0)
                return target_open_temporary(ctl, target, path, 0);
        if (S_ISREG(st.st_mode))
                return target_open_temporary(ctl, target, path, st.st_mode);
        target->fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
        return target->fd < 0 ? target_complain(ctl, path) : CTL_OK;
}

/* Everything is in it: it takes its place. */
static int target_commit(Ctl *ctl, Target *target)
{
        int r = close(target->fd);

        target->fd = -1;
        /* A file system that is full, or far away, may say so only now. */
        if (r < 0)
                return target_complain(ctl, target->path ? target->path : "standard output");
        if (!target->temporary_path)
                return CTL_OK;
        if (rename(target->temporary_path, target->path) < 0)
                return target_complain(ctl, target->path);
        interrupt_release();
        free(target->temporary_path);
        target->temporary_path = NULL;
        return CTL_OK;
}

static int get_to(Ctl *ctl, const Get *get, const char *name, const char *path)
{
        _ctl_cleanup_(ctl_cleanup_object) struct folio_object *object = NULL;
        _ctl_cleanup_(target_deinit) Target target = { .fd = -1 };
        uint64_t size_bytes, n_bytes = get->n_bytes;
        int r = folio_get(ctl->client, name, FOLIO_GET_UNMAPPED, get->timeout_ms, &object);

        if (r < 0)
                return ctl_fail(ctl, r, "get", name);
        size_bytes = folio_object_size(object);
        if (get->offset_bytes > size_bytes)
                return ctl_complain(ctl, "cannot get %s: it has %llu bytes, and %llu is beyond them", name,
                                    (unsigned long long)size_bytes, (unsigned long long)get->offset_bytes);
        if (n_bytes != LENGTH_ALL && n_bytes > size_bytes - get->offset_bytes)
                return ctl_complain(ctl, "cannot get %s: it has %llu bytes, and not %llu of them from %llu on", name,
                                    (unsigned long long)size_bytes, (unsigned long long)n_bytes,
                                    (unsigned long long)get->offset_bytes);
        if (n_bytes == LENGTH_ALL)
                n_bytes = size_bytes - get->offset_bytes;
        r = target_open(ctl, &target, path);
        if (r != CTL_OK)
                return r;
        r = transfer_drain(ctl, object, name, get->offset_bytes, n_bytes, target.fd,
                           strcmp(path, "-") ? path : "standard output");
        return r == CTL_OK ? target_commit(ctl, &target) : r;
}

static int get_parse(Ctl *ctl, Get *get)
{
        const char *argument;
        int id;

        while ((id = ctl_next_option(ctl, &argument)) > 0) {
                bool is_good = id == GET_WAIT     ? ctl_take_timeout(ctl, "--wait", argument, &get->timeout_ms)
                               : id == GET_OFFSET ? ctl_take_size(ctl, "--offset", argument, &get->offset_bytes)
                                                  : ctl_take_size(ctl, "--length", argument, &get->n_bytes);

                if (!is_good)
                        return ctl->status;
        }
        return id < 0 ? ctl->status : CTL_OK;
}

static int get_run(Ctl *ctl)
{
        Get get = { .n_bytes = LENGTH_ALL };
        int r = get_parse(ctl, &get);

        /* --help ends with CTL_OK too, and without arguments to read. */
        if (r != CTL_OK || !ctl->arguments || !ctl_check_arguments(ctl, 1, 2))
                return r != CTL_OK || !ctl->arguments ? r : ctl->status;
        r = ctl_open(ctl);
        return r == CTL_OK ? get_to(ctl, &get, ctl->arguments[0], ctl->n_arguments == 2 ? ctl->arguments[1] : "-") : r;
}

static int cat_run(Ctl *ctl)
{
        Get get = { .n_bytes = LENGTH_ALL };
        int r = get_parse(ctl, &get);

        if (r != CTL_OK || !ctl->arguments || !ctl_check_arguments(ctl, 1, 1 << 20))
                return r != CTL_OK || !ctl->arguments ? r : ctl->status;
        r = ctl_open(ctl);
        if (r != CTL_OK)
                return r;
        /* As cat does: one that is not there does not keep the others back. */
        for (int i = 0; i < ctl->n_arguments; i++) {
                int r_one = get_to(ctl, &get, ctl->arguments[i], "-");

                r = r_one > r ? r_one : r;
        }
        return r;
}

const CtlVerb verb_get = {
        .name = "get",
        .usage = "NAME [FILE|-]",
        .summary = "write an object to a file or to standard output",
        .options = options,
        .run = get_run,
};

const CtlVerb verb_cat = {
        .name = "cat",
        .usage = "NAME...",
        .summary = "write objects to standard output, one behind the other",
        .options = options,
        .run = cat_run,
};
