/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests that change what cannot be changed back (uid, namespaces, system call filters) run in a forked child. There
 * cmocka's assertions would jump into the parent's copy of the runner: use CHECK(), which says where and exits.
 */
#ifndef TESTS_UNIT_CHILD_H
#define TESTS_UNIT_CHILD_H

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILD_SKIPPED 77

#define CHECK(condition)                                                                                               \
        do {                                                                                                           \
                if (!(condition)) {                                                                                    \
                        fprintf(stderr, "# %s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno);            \
                        _exit(1);                                                                                      \
                }                                                                                                      \
        } while (0)

/* Runs @function in a child, and fails or skips the test as it does. */
static inline void child_run(void (*function)(void *userdata), void *userdata)
{
        int status = 0;
        pid_t pid;

        fflush(NULL);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                function(userdata);
                _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFEXITED(status) && WEXITSTATUS(status) == CHILD_SKIPPED)
                skip();
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
}

/* Another uid, and as good as freshly started with it: the kernel lets it look at its own /proc files. */
static inline bool child_become_nobody(void)
{
        return setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0 &&
               prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0;
}

/*
 * From now on @number answers @action (SECCOMP_RET_ERRNO | an errno, or SECCOMP_RET_KILL_PROCESS) where argument
 * @argument has one of the bits of @bits; with 0 bits always.
 */
static inline void child_filter(long number, unsigned argument, uint32_t bits, uint32_t action)
{
        struct sock_filter filter[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 3),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                         (uint32_t)offsetof(struct seccomp_data, args) + argument * (uint32_t)sizeof(uint64_t)),
                BPF_JUMP(BPF_JMP | (bits ? BPF_JSET : BPF_JGE) | BPF_K, bits, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, action),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = { .len = sizeof(filter) / sizeof(filter[0]), .filter = filter };

        CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0)
                _exit(CHILD_SKIPPED);
}

#endif
