/* SPDX-License-Identifier: Apache-2.0 */
/* Running programs to their end, and the places they run in. */
#include "tests/integration/program.h"

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/stat.h>

enum {
        RUN_MS_MAX = 30000,
        ARGUMENTS_MAX = 40,
};

static pid_t start_piped(char *const argv[], int *ret_fd)
{
        int ends[2];
        pid_t pid;

        CHECK(pipe2(ends, O_CLOEXEC) == 0);
        fflush(NULL);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
                (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
                (void)dup2(ends[1], STDOUT_FILENO);
                (void)dup2(ends[1], STDERR_FILENO);
                execvp(argv[0], argv);
                fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
                _exit(127);
        }
        close(ends[1]);
        *ret_fd = ends[0];
        return pid;
}

int program_run(char *const argv[], char *ret_output, size_t n_output)
{
        struct timespec begun, now;
        size_t n = 0;
        int fd, status;
        pid_t pid = start_piped(argv, &fd);

        (void)clock_gettime(CLOCK_MONOTONIC, &begun);
        for (;;) {
                struct pollfd readable = { .fd = fd, .events = POLLIN };
                char rest[256];
                ssize_t got;

                (void)clock_gettime(CLOCK_MONOTONIC, &now);
                if ((now.tv_sec - begun.tv_sec) * 1000 > RUN_MS_MAX || poll(&readable, 1, RUN_MS_MAX) != 1) {
                        (void)kill(pid, SIGKILL);
                        (void)waitpid(pid, NULL, 0);
                        close(fd);
                        ret_output[n] = '\0';
                        return -1;
                }
                if (n + 1 < n_output)
                        got = read(fd, ret_output + n, n_output - 1 - n);
                else
                        got = read(fd, rest, sizeof(rest));
                if (got <= 0)
                        break;
                if (n + 1 < n_output)
                        n += (size_t)got;
        }
        ret_output[n] = '\0';
        close(fd);
        CHECK(waitpid(pid, &status, 0) == pid);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void program_set_world(const char *world)
{
        const char *launcher = getenv("FOLIO_LAUNCHER"), *real = getenv("FOLIO_LAUNCH_FOLIOD");

        if (world) {
                CHECK(launcher);
                if (!real)
                        CHECK(setenv("FOLIO_LAUNCH_FOLIOD", getenv("FOLIOD"), 1) == 0);
                CHECK(setenv("FOLIO_LAUNCH_WORLD", world, 1) == 0);
                CHECK(setenv("FOLIOD", launcher, 1) == 0);
        } else if (real) {
                CHECK(setenv("FOLIOD", real, 1) == 0);
                (void)unsetenv("FOLIO_LAUNCH_FOLIOD");
                (void)unsetenv("FOLIO_LAUNCH_WORLD");
        }
}

int program_run_foliod(const char *world, const char *socket_path, char *ret_output, size_t n_output,
                       const char *option, ...)
{
        char *argv[ARGUMENTS_MAX];
        va_list options;
        size_t n = 0;
        int status;

        program_set_world(world);
        argv[n++] = getenv("FOLIOD");
        argv[n++] = (char *)"--socket";
        argv[n++] = (char *)socket_path;
        va_start(options, option);
        for (; option; option = va_arg(options, const char *)) {
                CHECK(n + 1 < ARGUMENTS_MAX);
                argv[n++] = (char *)option;
        }
        va_end(options);
        argv[n] = NULL;
        status = program_run(argv, ret_output, n_output);
        program_set_world(NULL);
        return status;
}

void program_make_directory(char ret_path[64])
{
        (void)snprintf(ret_path, 64, "/tmp/folio-test-XXXXXX");
        CHECK(mkdtemp(ret_path));
        CHECK(chmod(ret_path, 0755) == 0);
}

void program_remove_directory(const char *path)
{
        DIR *directory = opendir(path);

        if (!directory)
                return;
        for (struct dirent *entry; (entry = readdir(directory));) {
                if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
                        continue;
                if (unlinkat(dirfd(directory), entry->d_name, 0) != 0)
                        (void)unlinkat(dirfd(directory), entry->d_name, AT_REMOVEDIR);
        }
        closedir(directory);
        (void)rmdir(path);
}

static bool write_text(const char *directory, const char *file, const char *text)
{
        char path[160];
        bool ok;
        int fd;

        (void)snprintf(path, sizeof(path), "%s/%s", directory, file);
        fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0)
                return false;
        ok = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
        close(fd);
        return ok;
}

bool program_make_cgroup(uint64_t limit_bytes, char ret_path[96])
{
        /* Version 1 where the memory controller is mounted there, else version 2. */
        static const struct {
                const char *root;
                const char *file;
        } kinds[] = {
                { "/sys/fs/cgroup/memory", "memory.limit_in_bytes" },
                { "/sys/fs/cgroup", "memory.max" },
        };
        char text[32];

        (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)limit_bytes);
        for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
                (void)snprintf(ret_path, 96, "%s/folio-test-%d", kinds[i].root, (int)getpid());
                if (mkdir(ret_path, 0755) != 0)
                        continue;
                if (write_text(ret_path, kinds[i].file, text))
                        return true;
                (void)rmdir(ret_path);
        }
        return false;
}

void program_remove_cgroup(const char *path)
{
        /* Its last process may still be on its way out. */
        for (unsigned i = 0; i < 2000 && rmdir(path) != 0 && errno == EBUSY; i++)
                harness_pause();
}
