/* SPDX-License-Identifier: Apache-2.0 */
/* strace as a child of the test. It is attached when every thread of the target names a tracer in its status. */
#include "tests/integration/trace.h"

#include <dirent.h>
#include <limits.h>
#include <sys/prctl.h>

/* A sanitizer's allocator asks the kernel for memory now and then, which is no call of ours. */
static bool is_of_sanitizer(const char *line)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
        return strstr(line, "MAP_ANONYMOUS") || strstr(line, "munmap(") || strstr(line, "madvise(");
#else
        (void)line;
        return false;
#endif
}

static bool is_traced(pid_t pid, const char *task)
{
        char path[128], line[256];
        bool yes = false;
        FILE *status;

        (void)snprintf(path, sizeof(path), "/proc/%d/task/%.20s/status", (int)pid, task);
        status = fopen(path, "re");
        if (!status)
                return true; /* gone meanwhile */
        while (fgets(line, sizeof(line), status))
                if (strncmp(line, "TracerPid:", 10) == 0)
                        yes = strtol(line + 10, NULL, 10) != 0;
        fclose(status);
        return yes;
}

static bool are_all_traced(pid_t pid)
{
        char path[64];
        bool all = true;
        DIR *tasks;

        (void)snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
        tasks = opendir(path);
        if (!tasks)
                return false;
        for (struct dirent *entry; (entry = readdir(tasks));)
                if (entry->d_name[0] != '.' && !is_traced(pid, entry->d_name))
                        all = false;
        closedir(tasks);
        return all;
}

bool trace_begin(Trace *trace, const Foliod *foliod, pid_t pid, const char *calls)
{
        char pid_text[16], filter[256];

        (void)snprintf(trace->path, sizeof(trace->path), "%s/trace", foliod->directory);
        (void)unlink(trace->path);
        (void)snprintf(pid_text, sizeof(pid_text), "%d", (int)pid);
        (void)snprintf(filter, sizeof(filter), "trace=%s", calls ? calls : "all");
        fflush(NULL);
        trace->pid = fork();
        CHECK(trace->pid >= 0);
        if (trace->pid == 0) {
                int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

                (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
                (void)dup2(null, STDERR_FILENO);
                execlp("strace", "strace", "-f", "-q", "-e", filter, "-e", "signal=none", "-o", trace->path, "-p",
                       pid_text, (char *)NULL);
                _exit(127);
        }
        for (unsigned i = 0; i < 5000; i++) {
                if (waitpid(trace->pid, NULL, WNOHANG) == trace->pid)
                        return false;
                if (are_all_traced(pid))
                        return true;
                harness_pause();
        }
        (void)kill(trace->pid, SIGKILL);
        (void)waitpid(trace->pid, NULL, 0);
        return false;
}

void trace_end(Trace *trace)
{
        (void)kill(trace->pid, SIGINT);
        (void)waitpid(trace->pid, NULL, 0);
        trace->pid = 0;
}

unsigned trace_count(const Trace *trace, const char *text, bool is_loud)
{
        FILE *lines = fopen(trace->path, "re");
        char line[1024];
        unsigned n = 0;

        CHECK(lines);
        while (fgets(line, sizeof(line), lines))
                if (strstr(line, text) && !is_of_sanitizer(line)) {
                        if (is_loud && n < 20)
                                fprintf(stderr, "# strace: %s", line);
                        n++;
                }
        fclose(lines);
        return n;
}

unsigned trace_count_between(const Trace *trace, const char *from, const char *to)
{
        FILE *lines = fopen(trace->path, "re");
        bool is_inside = false, is_over = false;
        char line[1024];
        unsigned n = 0;

        CHECK(lines);
        while (fgets(line, sizeof(line), lines)) {
                if (strstr(line, to))
                        is_over = is_inside;
                if (is_over)
                        break;
                if (is_inside && !is_of_sanitizer(line)) {
                        if (n < 20)
                                fprintf(stderr, "# strace: %s", line);
                        n++;
                }
                if (strstr(line, from))
                        is_inside = true;
        }
        fclose(lines);
        return is_over ? n : UINT_MAX;
}
