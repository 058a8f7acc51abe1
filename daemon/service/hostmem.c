/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cgroup of this process is found the way the kernel tells it: /proc/self/cgroup says which, /proc/self/mountinfo
 * where its files are; a limit anywhere between there and the top of the mount counts. In a container the top of the
 * mount can be the container's own cgroup, or the path can point outside what is mounted; then the mount's top is the
 * nearest that can be seen. Anything that cannot be read is no limit.
 */
#include "daemon/service/hostmem.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/macro.h"

DEFINE_CLEANUP(FILE *, cleanup_fclose, (void)fclose) /* read only: nothing to lose */

static FILE *open_below(const char *root, const char *path)
{
        char full[PATH_MAX];
        int n = snprintf(full, sizeof(full), "%s%s", root, path);

        return n > 0 && (size_t)n < sizeof(full) ? fopen(full, "re") : NULL;
}

uint64_t hostmem_total_bytes(const char *root)
{
        _cleanup_(cleanup_fclose) FILE *file = open_below(root, "/proc/meminfo");
        uint64_t kib, n_bytes = 0;
        char line[256];

        while (file && fgets(line, sizeof(line), file))
                if (sscanf(line, "MemTotal: %" SCNu64 " kB", &kib) == 1 && checked_mul(kib, KIB, &n_bytes))
                        break;
        return n_bytes;
}

/* The path of the cgroup of @controller (NULL: of version 2) into @path. */
static bool find_own_path(const char *root, const char *controller, char *path, size_t n_path)
{
        _cleanup_(cleanup_fclose) FILE *file = open_below(root, "/proc/self/cgroup");
        _cleanup_(cleanup_free) char *line = NULL;
        size_t n_line = 0;

        while (file && getline(&line, &n_line, file) > 0) {
                char *names = strchr(line, ':');
                char *at = names ? strchr(names + 1, ':') : NULL;
                bool is_it = false;

                if (!at || at[1] != '/')
                        continue;
                *at++ = '\0';
                names++;
                if (!controller)
                        is_it = *names == '\0';
                for (char *rest = names, *name; controller && (name = strsep(&rest, ","));)
                        is_it = is_it || strcmp(name, controller) == 0;
                at[strcspn(at, "\n")] = '\0';
                if (is_it && strlen(at) < n_path) {
                        memcpy(path, at, strlen(at) + 1);
                        return true;
                }
        }
        return false;
}

/* Blanks and the like stand in mountinfo as a backslash and three octal digits. */
static void unescape(char *text)
{
        char *to = text;

        for (const char *from = text; *from; to++) {
                unsigned value;
                int n = 0;

                if (*from == '\\' && sscanf(from + 1, "%3o%n", &value, &n) == 1 && n == 3) {
                        *to = (char)value;
                        from += 4;
                } else {
                        *to = *from++;
                }
        }
        *to = '\0';
}

static bool has_option(char *options, const char *wanted)
{
        for (char *name; (name = strsep(&options, ","));)
                if (strcmp(name, wanted) == 0)
                        return true;
        return false;
}

/* One line of mountinfo, taken apart in place: is it the mount where @controller's files are? */
static bool parse_mount(char *line, const char *controller, const char **ret_top, const char **ret_mount_point)
{
        char *fields[5], *rest = line, *type, *options;

        line[strcspn(line, "\n")] = '\0';
        for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
                if (!(fields[i] = strsep(&rest, " ")))
                        return false;
        if (!rest || !(rest = strstr(rest, " - ")))
                return false;
        rest += 3;
        type = strsep(&rest, " ");
        (void)strsep(&rest, " "); /* the source: any word */
        options = rest;
        if (!options || strcmp(type, controller ? "cgroup" : "cgroup2") != 0)
                return false;
        if (controller && !has_option(options, controller))
                return false;
        unescape(fields[3]);
        unescape(fields[4]);
        *ret_top = fields[3];
        *ret_mount_point = fields[4];
        return true;
}

static FILE *open_in(const char *root, const char *directory, const char *name, char **ret_path)
{
        if (asprintf(ret_path, "%s/%s", directory, name) < 0) {
                *ret_path = NULL;
                return NULL;
        }
        return open_below(root, *ret_path);
}

/* "max" is no number, and no limit; version 1 writes a number beyond any memory instead. */
static bool read_number(const char *root, const char *directory, const char *name, uint64_t *ret, char **ret_path)
{
        _cleanup_(cleanup_free) char *path = NULL;
        _cleanup_(cleanup_fclose) FILE *file = open_in(root, directory, name, &path);
        uint64_t value;

        if (!file || fscanf(file, "%" SCNu64, &value) != 1 || value >= UINT64_C(1) << 60)
                return false;
        *ret = value;
        if (ret_path)
                *ret_path = steal_ptr(&path);
        return true;
}

/* Called for the directory of each cgroup, from ours on upwards. */
typedef void (*VisitFn)(void *userdata, const char *root, const char *directory, bool is_v2);

static void walk_up(const char *root, const char *mount_point, const char *below, bool is_v2, VisitFn visit,
                    void *userdata)
{
        size_t n_top = strlen(mount_point);
        char directory[PATH_MAX];
        int n = snprintf(directory, sizeof(directory), "%s%s", mount_point, below);

        if (n < 0 || (size_t)n >= sizeof(directory))
                return;
        for (;;) {
                char *slash;

                visit(userdata, root, directory, is_v2);
                slash = strrchr(directory, '/');
                if (!slash || (size_t)(slash - directory) < n_top)
                        return;
                *slash = '\0';
        }
}

/* What is left of @path below @top, or "" where it is not below. */
static const char *path_below(const char *path, const char *top)
{
        size_t n = strlen(top);

        if (strstr(path, "/.."))
                return "";
        if (strcmp(top, "/") == 0)
                return strcmp(path, "/") == 0 ? "" : path;
        return strncmp(path, top, n) == 0 && path[n] == '/' ? path + n : "";
}

static void visit_hierarchy(const char *root, const char *controller, VisitFn visit, void *userdata)
{
        _cleanup_(cleanup_fclose) FILE *mounts = open_below(root, "/proc/self/mountinfo");
        _cleanup_(cleanup_free) char *line = NULL;
        char path[PATH_MAX];
        size_t n_line = 0;

        if (!mounts || !find_own_path(root, controller, path, sizeof(path)))
                return;
        while (getline(&line, &n_line, mounts) > 0) {
                const char *top, *mount_point;

                if (parse_mount(line, controller, &top, &mount_point))
                        walk_up(root, mount_point, path_below(path, top), !controller, visit, userdata);
        }
}

typedef struct Limit {
        uint64_t n_bytes;
        char *file;                  /* NULL: none */
} Limit;

static void lower_limit(Limit *limit, const char *root, const char *directory, const char *name)
{
        char *path = NULL;
        uint64_t value;

        if (!read_number(root, directory, name, &value, &path))
                return;
        if (value < limit->n_bytes) {
                limit->n_bytes = value;
                free(limit->file);
                limit->file = steal_ptr(&path);
        }
        free(path);
}

static void find_limit(void *userdata, const char *root, const char *directory, bool is_v2)
{
        lower_limit(userdata, root, directory, is_v2 ? "memory.max" : "memory.limit_in_bytes");
        if (is_v2)
                lower_limit(userdata, root, directory, "memory.high");
}

uint64_t hostmem_cgroup_limit_bytes(const char *root, char **ret_file)
{
        Limit limit = { .n_bytes = UINT64_MAX };

        visit_hierarchy(root, NULL, find_limit, &limit);
        visit_hierarchy(root, "memory", find_limit, &limit);
        *ret_file = limit.file;
        return limit.n_bytes;
}

typedef struct Room {
        bool is_limited;
        uint64_t limit_bytes;
        uint64_t used_bytes;
} Room;

static uint64_t sum_of_files(const char *root, const char *directory, bool is_v2)
{
        _cleanup_(cleanup_free) char *path = NULL;
        _cleanup_(cleanup_fclose) FILE *file = open_in(root, directory, "memory.stat", &path);
        uint64_t value, sum = 0;
        char line[256], name[64];

        while (file && fgets(line, sizeof(line), file)) {
                const char *what = name;

                if (sscanf(line, "%63s %" SCNu64, name, &value) != 2)
                        continue;
                /* In version 1 it is those that include the cgroups below. */
                if (!is_v2 && strncmp(name, "total_", 6) != 0)
                        continue;
                if (!is_v2)
                        what += 6;
                if ((strcmp(what, "active_file") == 0 || strcmp(what, "inactive_file") == 0) &&
                    !checked_add(sum, value, &sum))
                        return 0;
        }
        return sum;
}

static uint64_t left_bytes(const Room *room)
{
        return room->used_bytes < room->limit_bytes ? room->limit_bytes - room->used_bytes : 0;
}

static void find_least_room(void *userdata, const char *root, const char *directory, bool is_v2)
{
        Room *least = userdata, here = { .is_limited = true };
        Limit limit = { .n_bytes = UINT64_MAX };
        uint64_t n_files;

        find_limit(&limit, root, directory, is_v2);
        free(limit.file);
        here.limit_bytes = limit.n_bytes;
        if (limit.n_bytes == UINT64_MAX || !read_number(root, directory, is_v2 ? "memory.current" :
                                                                                 "memory.usage_in_bytes",
                                                        &here.used_bytes, NULL))
                return;
        n_files = sum_of_files(root, directory, is_v2);
        here.used_bytes -= MIN(n_files, here.used_bytes);
        if (!least->is_limited || left_bytes(&here) < left_bytes(least))
                *least = here;
}

bool hostmem_cgroup_room(const char *root, uint64_t *ret_limit_bytes, uint64_t *ret_used_bytes)
{
        Room room = { .is_limited = false };

        visit_hierarchy(root, NULL, find_least_room, &room);
        visit_hierarchy(root, "memory", find_least_room, &room);
        if (!room.is_limited)
                return false;
        *ret_limit_bytes = room.limit_bytes;
        *ret_used_bytes = room.used_bytes;
        return true;
}
