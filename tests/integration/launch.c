/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Becomes foliod in a world that lacks something. $FOLIO_LAUNCH_FOLIOD is the program, the arguments are passed on,
 * and $FOLIO_LAUNCH_WORLD says what is missing, in words:
 *
 *      cgroup=PATH       it runs in this (memory) cgroup
 *      memfd=ENOSYS      memfd_create() always fails so; also EPERM, EMFILE
 *      memfd=OLD         memfd_create() does not know the flags of Linux 6.3: EINVAL
 *      memfd=NOEXEC      memfd_create() wants MFD_NOEXEC_SEAL: EACCES without it
 *      memfd=KILL        the process dies of MFD_EXEC
 *      seal=OLD          F_SEAL_FUTURE_WRITE is not known: EINVAL
 *      mount=EPERM       no file system can be made, and no user namespace
 *      noexec=N          a pid namespace of its own where vm.memfd_noexec is N; the launcher stays as its parent
 *      bare              no HOME, USER or XDG_RUNTIME_DIR
 *      preload=PATH      a library that gets in the way of libc
 *      nofile=N          it can have N descriptors
 *      stack=N           its first thread has a stack of N bytes, at most
 *
 * Knows nothing of what foliod makes of it.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
        FLAG_NOEXEC_SEAL = 0x8,
        FLAG_EXEC = 0x10,
        SEAL_FUTURE_WRITE = 0x10,
        FCNTL_ADD_SEALS = 1033,
};

static void fail(const char *what)
{
        fprintf(stderr, "launch: %s: %s\n", what, strerror(errno));
        _exit(126);
}

/*
 * One rule: call @number answers @verdict where its argument @argument (low half), masked, is @value, or, with
 * @is_negated, is not. Anything else is let through. Argument -1: always.
 */
static void forbid(int number, int argument, uint32_t mask, uint32_t value, int is_negated, uint32_t verdict)
{
        struct sock_filter any[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, verdict),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_filter some[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 4),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                         (uint32_t)(offsetof(struct seccomp_data, args) + 8 * (argument < 0 ? 0 : argument))),
                BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, is_negated ? 1 : 0, is_negated ? 0 : 1),
                BPF_STMT(BPF_RET | BPF_K, verdict),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {
                .len = argument < 0 ? sizeof(any) / sizeof(any[0]) : sizeof(some) / sizeof(some[0]),
                .filter = argument < 0 ? any : some,
        };

        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
                fail("seccomp");
}

static void forbid_memfd(const char *how)
{
        const uint32_t error = SECCOMP_RET_ERRNO;

        if (strcmp(how, "ENOSYS") == 0)
                forbid(SYS_memfd_create, -1, 0, 0, 0, error | ENOSYS);
        else if (strcmp(how, "EPERM") == 0)
                forbid(SYS_memfd_create, -1, 0, 0, 0, error | EPERM);
        else if (strcmp(how, "EMFILE") == 0)
                forbid(SYS_memfd_create, -1, 0, 0, 0, error | EMFILE);
        else if (strcmp(how, "OLD") == 0)
                forbid(SYS_memfd_create, 1, FLAG_NOEXEC_SEAL | FLAG_EXEC, 0, 1, error | EINVAL);
        else if (strcmp(how, "NOEXEC") == 0)
                forbid(SYS_memfd_create, 1, FLAG_NOEXEC_SEAL, FLAG_NOEXEC_SEAL, 1, error | EACCES);
        else if (strcmp(how, "KILL") == 0)
                forbid(SYS_memfd_create, 1, FLAG_EXEC, FLAG_EXEC, 0, SECCOMP_RET_KILL_PROCESS);
}

/* F_ADD_SEALS with FUTURE_WRITE: two arguments count, so the rule is written out. */
static void forbid_future_write(void)
{
        struct sock_filter rule[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fcntl, 0, 6),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + 8),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FCNTL_ADD_SEALS, 0, 4),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + 16),
                BPF_STMT(BPF_ALU | BPF_AND | BPF_K, SEAL_FUTURE_WRITE),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SEAL_FUTURE_WRITE, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = { .len = sizeof(rule) / sizeof(rule[0]), .filter = rule };

        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
                fail("seccomp");
}

static void write_text(const char *path, const char *text)
{
        int fd = open(path, O_WRONLY | O_CLOEXEC);

        if (fd < 0 || write(fd, text, strlen(text)) < 0)
                fail(path);
        close(fd);
}

static void enter_cgroup(const char *directory)
{
        char path[256], pid[16];

        (void)snprintf(path, sizeof(path), "%s/cgroup.procs", directory);
        (void)snprintf(pid, sizeof(pid), "%d", (int)getpid());
        write_text(path, pid);
}

static volatile pid_t inner;

static void pass_on(int number)
{
        if (inner > 0)
                (void)kill(inner, number);
}

/* Returns in the new namespace's first process only. */
static void enter_pid_namespace(const char *noexec)
{
        int status;

        if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0)
                fail("unshare");
        (void)signal(SIGTERM, pass_on);
        inner = fork();
        if (inner < 0)
                fail("fork");
        if (inner > 0) {
                /* Only foliod itself may keep the pipe that says it is ready, or nobody would notice its end. */
                for (int fd = 3; fd < 256; fd++)
                        (void)close(fd);
                while (waitpid(inner, &status, 0) < 0)
                        if (errno != EINTR)
                                fail("waitpid");
                _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
        }
        (void)signal(SIGTERM, SIG_DFL);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 || mount("proc", "/proc", "proc", 0, NULL) != 0)
                fail("mount");
        write_text("/proc/sys/vm/memfd_noexec", noexec);
}

static void lose(const char *word)
{
        if (strncmp(word, "cgroup=", 7) == 0)
                enter_cgroup(word + 7);
        else if (strncmp(word, "memfd=", 6) == 0)
                forbid_memfd(word + 6);
        else if (strcmp(word, "seal=OLD") == 0)
                forbid_future_write();
        else if (strcmp(word, "mount=EPERM") == 0) {
                forbid(SYS_fsopen, -1, 0, 0, 0, SECCOMP_RET_ERRNO | EPERM);
                forbid(SYS_mount, -1, 0, 0, 0, SECCOMP_RET_ERRNO | EPERM);
                forbid(SYS_unshare, -1, 0, 0, 0, SECCOMP_RET_ERRNO | EPERM);
        } else if (strncmp(word, "noexec=", 7) == 0)
                enter_pid_namespace(word + 7);
        else if (strcmp(word, "bare") == 0) {
                (void)unsetenv("HOME");
                (void)unsetenv("USER");
                (void)unsetenv("XDG_RUNTIME_DIR");
        } else if (strncmp(word, "preload=", 8) == 0) {
                const char *options = getenv("ASAN_OPTIONS");
                char text[512];

                /* A foliod with the address sanitizer insists on being loaded first, unless it is told. */
                (void)snprintf(text, sizeof(text), "%s:verify_asan_link_order=0", options ? options : "");
                (void)setenv("ASAN_OPTIONS", options ? text : text + 1, 1);
                (void)setenv("LD_PRELOAD", word + 8, 1);
        } else if (strncmp(word, "nofile=", 7) == 0) {
                struct rlimit few = { 0 };

                few.rlim_cur = few.rlim_max = strtoul(word + 7, NULL, 10);
                if (setrlimit(RLIMIT_NOFILE, &few) != 0)
                        fail(word);
        } else if (strncmp(word, "stack=", 6) == 0) {
                struct rlimit small = { 0 };

                small.rlim_cur = small.rlim_max = strtoul(word + 6, NULL, 10);
                if (setrlimit(RLIMIT_STACK, &small) != 0)
                        fail(word);
        } else {
                fprintf(stderr, "launch: no such world: %s\n", word);
                _exit(126);
        }
}

int main(int argc, char **argv)
{
        const char *world = getenv("FOLIO_LAUNCH_WORLD");
        char *program = getenv("FOLIO_LAUNCH_FOLIOD");
        char *words = strdup(world ? world : ""), *rest = NULL;

        (void)argc;
        if (!program || !words)
                fail("nothing to launch");
        for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
                lose(word);
        argv[0] = program;
        (void)execvp(program, argv);
        fail(program);
}
