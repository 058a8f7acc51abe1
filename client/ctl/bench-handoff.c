/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The suite `handoff`: one process makes something, others wait for it and have its bytes: folio_put() and folio_get()
 * with a timeout, asleep or (poll) with FOLIO_GET_POLL, against a sealed memfd that is sent to each (memfd), and a tmpfs
 * file whose waiters are woken (file). Measured is from before it is made until the last waiter has read a byte of every
 * page; of several also until the first (first). What the waiters use of the CPU is counted too.
 */
#include "client/ctl/bench-many.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/ctl/bench-waiter.h"

#define MIB ((uint64_t)1 << 20)
#define SMALL_BYTES 64u
#define N_SMALL 100u
#define N_LARGE 32u
#define N_EIGHT 8u
#define TIMEOUT_MS 10000
#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

/* What theirs is, and until which of the waiters it is measured. */
enum { KIND_MEMFD = 1, KIND_FILE = 2, KIND_WAY = 3, KIND_FIRST = 4, KIND_POLL = 8 };
/* What the waiters are told. */
enum { WAIT_STORE, WAIT_STORE_POLL, WAIT_MEMFD, WAIT_FILE };

typedef struct Handing {
        BenchArea source;
        BenchFolder folder;
        BenchMany many;
        BenchWaiters waiters;
        Bench *bench;
        uint64_t size_bytes;
        int sockets[N_EIGHT][2]; /* ours, the waiter's */
        atomic_uint *n_made; /* shared: of files; waited at */
        struct folio_client *client; /* in a waiter */
} Handing;

/* --- in a waiter -------------------------------------------------------------------------------------------------- */

static int open_client(void *argument, unsigned index)
{
        Handing *handing = argument;

        (void)index; /* all do the same */
        return bench_store_connect(&handing->bench->store, 0, &handing->client);
}

/* A byte of every page, and all of what is small. */
static int take_bytes(const Handing *handing, const unsigned char *bytes)
{
        unsigned difference = 0;

        for (uint64_t offset = 0; offset < handing->size_bytes; offset += BENCH_PAGE_BYTES)
                difference |= (unsigned)(bytes[offset] ^ handing->source.address[offset]);
        return difference || memcmp(bytes, handing->source.address, SMALL_BYTES) != 0 ? -EILSEQ : 0;
}

static int wait_for_object(Handing *handing, uint32_t flags, uint32_t number, uint64_t *ret_ns)
{
        struct folio_object *object;
        int r = folio_get(handing->client, handing->many.names[number], flags, TIMEOUT_MS, &object);

        if (r < 0)
                return r;
        r = take_bytes(handing, folio_object_data(object));
        *ret_ns = bench_now_ns();
        (void)folio_object_release(object);
        return r;
}

static int take_file(const Handing *handing, int fd, uint64_t *ret_ns)
{
        void *address = mmap(NULL, (size_t)handing->size_bytes, PROT_READ, MAP_SHARED, fd, 0);
        int r;

        if (address == MAP_FAILED)
                return -errno;
        r = take_bytes(handing, address);
        *ret_ns = bench_now_ns();
        (void)munmap(address, (size_t)handing->size_bytes);
        return r;
}

typedef union Control {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
} Control;

static int wait_for_memfd(const Handing *handing, unsigned index, uint64_t *ret_ns)
{
        Control control = { 0 };
        char byte;
        struct iovec part = { .iov_base = &byte, .iov_len = 1 };
        struct msghdr message = {
                .msg_iov = &part,
                .msg_iovlen = 1,
                .msg_control = control.bytes,
                .msg_controllen = sizeof(control.bytes),
        };
        struct cmsghdr *header;
        int fd, r;

        if (recvmsg(handing->sockets[index][1], &message, MSG_CMSG_CLOEXEC) != 1)
                return -EIO;
        header = CMSG_FIRSTHDR(&message);
        if (!header || header->cmsg_type != SCM_RIGHTS)
                return -EIO;
        memcpy(&fd, CMSG_DATA(header), sizeof(fd));
        r = take_file(handing, fd, ret_ns);
        (void)close(fd);
        return r;
}

static int wait_for_file(const Handing *handing, uint32_t number, uint64_t *ret_ns)
{
        unsigned n_made;
        int fd, r;

        while ((n_made = atomic_load(handing->n_made)) <= number)
                (void)syscall(SYS_futex, handing->n_made, FUTEX_WAIT, n_made, NULL, NULL, 0);
        fd = openat(handing->folder.fd, handing->many.files[number], O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        r = take_file(handing, fd, ret_ns);
        (void)close(fd);
        return r;
}

static int wait_for_one(void *argument, unsigned index, uint32_t kind, uint32_t number, uint64_t *ret_ns)
{
        Handing *handing = argument;

        if (kind == WAIT_STORE || kind == WAIT_STORE_POLL)
                return wait_for_object(handing, kind == WAIT_STORE ? 0 : FOLIO_GET_POLL, number, ret_ns);
        return kind == WAIT_MEMFD ? wait_for_memfd(handing, index, ret_ns) : wait_for_file(handing, number, ret_ns);
}

/* --- in the process that makes it --------------------------------------------------------------------------------- */

static int make_object(BenchRun *run, uint32_t number)
{
        struct folio_create_options options = bench_store_options(0);
        Handing *handing = run->bench->state;

        return folio_put(run->client, handing->many.names[number], handing->source.address, handing->size_bytes,
                         &options);
}

static int send_fd(int socket_fd, int fd)
{
        Control control = { 0 };
        struct iovec part = { .iov_base = (char[]){ 0 }, .iov_len = 1 };
        struct msghdr message = {
                .msg_iov = &part,
                .msg_iovlen = 1,
                .msg_control = control.bytes,
                .msg_controllen = sizeof(control.bytes),
        };

        control.header = (struct cmsghdr){
                .cmsg_len = CMSG_LEN(sizeof(int)),
                .cmsg_level = SOL_SOCKET,
                .cmsg_type = SCM_RIGHTS,
        };
        memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
        return sendmsg(socket_fd, &message, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static int make_memfd(Handing *handing)
{
        int fd = memfd_create("folioctl-bench", MFD_CLOEXEC | MFD_ALLOW_SEALING), r;

        if (fd < 0)
                return -errno;
        r = bench_write(fd, 0, handing->source.address, handing->size_bytes, 0);
        if (r == 0 && fcntl(fd, F_ADD_SEALS, SEALS) < 0)
                r = -errno;
        for (unsigned i = 0; r == 0 && i < handing->waiters.n_waiters; i++)
                r = send_fd(handing->sockets[i][0], fd);
        (void)close(fd);
        return r;
}

static int make_file(Handing *handing, uint32_t number)
{
        int r = bench_folder_put(&handing->folder, handing->many.files[number], handing->source.address,
                                 handing->size_bytes);

        if (r < 0)
                return r;
        atomic_store(handing->n_made, number + 1);
        (void)syscall(SYS_futex, handing->n_made, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
        return 0;
}

static int hand_one(BenchRun *run, uint32_t wait_kind, uint32_t number, BenchSample *sample)
{
        Handing *handing = run->bench->state;
        BenchWaited waited;
        uint64_t begun_ns, time_ns;
        int r = bench_waiters_expect(&handing->waiters, wait_kind, number);

        if (r < 0)
                return r;
        begun_ns = bench_now_ns();
        if (wait_kind == WAIT_STORE || wait_kind == WAIT_STORE_POLL)
                r = make_object(run, number);
        else
                r = wait_kind == WAIT_MEMFD ? make_memfd(handing) : make_file(handing, number);
        if (r == 0)
                r = bench_waiters_collect(&handing->waiters, &waited);
        if (r < 0)
                return r;
        time_ns = (run->c->kind & KIND_FIRST ? waited.first_ns : waited.last_ns) - begun_ns;
        sample->time_ns += time_ns;
        sample->waiters_cpu_ns += waited.cpu_ns;
        if (run->laps)
                bench_laps_add(run->laps, time_ns ? time_ns : 1);
        return 0;
}

static int hand_all(BenchRun *run, uint32_t wait_kind)
{
        Handing *handing = run->bench->state;
        BenchSample sum = { 0 }, whole = { 0 };
        int r = 0;

        bench_counter_begin(&run->bench->counter, &whole);
        for (uint32_t i = 0; r == 0 && i < handing->many.n; i++)
                r = hand_one(run, wait_kind, i, &sum);
        bench_counter_end(&run->bench->counter, &whole);
        *run->sample = (BenchSample){
                .time_ns = sum.time_ns,
                .waiters_cpu_ns = sum.waiters_cpu_ns,
                .n_faults = whole.n_faults,
                .n_tlb_misses = BENCH_UNKNOWN,
                .n_calls = BENCH_UNKNOWN,
                .is_taken = true,
        };
        return r;
}

static int hand_ours(BenchRun *run)
{
        int r = hand_all(run, run->c->kind & KIND_POLL ? WAIT_STORE_POLL : WAIT_STORE);

        return r == -EILSEQ ? ctl_complain(run->bench->ctl, "wrong bytes: a waiter got others than were put")
                            : bench_check_store(run, r);
}

static int hand_theirs(BenchRun *run)
{
        return bench_check_plain(run, hand_all(run, (run->c->kind & KIND_WAY) == KIND_MEMFD ? WAIT_MEMFD : WAIT_FILE));
}

static int clean_ours(BenchRun *run)
{
        Handing *handing = run->bench->state;

        (void)bench_flush(run, 0);
        bench_many_delete(run->bench, &handing->many);
        return CTL_OK;
}

static int clean_theirs(BenchRun *run)
{
        Handing *handing = run->bench->state;

        bench_many_unlink(&handing->many, &handing->folder);
        atomic_store(handing->n_made, 0);
        return CTL_OK;
}

/* --- cases -------------------------------------------------------------------------------------------------------- */

static int handoff_teardown(BenchRun *run)
{
        Handing *handing = run->bench->state;

        bench_waiters_deinit(&handing->waiters);
        for (unsigned i = 0; i < N_EIGHT; i++)
                for (int k = 0; k < 2; k++) {
                        if (handing->sockets[i][k] >= 0)
                                (void)close(handing->sockets[i][k]);
                        handing->sockets[i][k] = -1;
                }
        (void)clean_ours(run);
        (void)clean_theirs(run);
        bench_many_deinit(&handing->many);
        bench_folder_deinit(&handing->folder);
        return CTL_OK;
}

static int begin_waiters(BenchRun *run)
{
        Handing *handing = run->bench->state;
        unsigned n_waiters = (unsigned)run->c->block_bytes;
        const BenchWaiting waiting = {
                .open = open_client,
                .wait = wait_for_one,
                .argument = handing,
                .is_polling = run->c->kind & KIND_POLL,
        };
        int r;

        for (unsigned i = 0; i < n_waiters; i++)
                if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, handing->sockets[i]) < 0)
                        return bench_check_plain(run, -errno);
        r = bench_waiters_init(&handing->waiters, n_waiters, &waiting);
        if (r < 0)
                return ctl_complain(run->bench->ctl, "cannot begin %u processes that wait: %s", n_waiters,
                                    folio_strerror(r));
        return CTL_OK;
}

static int handoff_setup(BenchRun *run)
{
        Bench *bench = run->bench;
        Handing *handing = bench->state;
        uint64_t n = run->c->size_bytes == SMALL_BYTES ? N_SMALL : N_LARGE;
        int r;

        if (!bench_store_has(&bench->store, bench_space(run)))
                return BENCH_LEFT_OUT;
        if (n * run->c->size_bytes > bench->size_bytes)
                n = bench->size_bytes / run->c->size_bytes;
        if (bench_many_init(&handing->many, &bench->store, bench_space(run), "handoff", (size_t)n) < 0)
                return ctl_out_of_memory(bench->ctl);
        handing->size_bytes = run->size_bytes = run->c->size_bytes;
        run->n_units = n;
        snprintf(run->what, sizeof(run->what), "%s",
                 (run->c->kind & KIND_WAY) == KIND_MEMFD ? "memfd written, sealed and sent to each, mmap"
                                                         : "tmpfs file written, futex wakes, open and mmap");
        r = bench_check_plain(run, bench_folder_init(&handing->folder, &bench->plain, run->c->theirs_pages));
        if (r == CTL_OK)
                r = begin_waiters(run);
        if (r != CTL_OK)
                (void)handoff_teardown(run);
        return r;
}

/* --- the suite ---------------------------------------------------------------------------------------------------- */

static int suite_open(Bench *bench)
{
        Handing *handing = calloc(1, sizeof(*handing));
        int r;

        if (!handing)
                return ctl_out_of_memory(bench->ctl);
        handing->folder = (BenchFolder)BENCH_FOLDER_NULL;
        handing->bench = bench;
        memset(handing->sockets, -1, sizeof(handing->sockets));
        bench->state = handing;
        r = bench_area_init(&handing->source, (size_t)MIB);
        handing->n_made = mmap(NULL, BENCH_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (handing->n_made == MAP_FAILED) {
                handing->n_made = NULL;
                r = -ENOMEM;
        }
        if (r < 0)
                return ctl_complain(bench->ctl, "no memory to put from: %s", strerror(-r));
        bench_fill(handing->source.address, (size_t)MIB, 23);
        return CTL_OK;
}

static void suite_close(Bench *bench)
{
        Handing *handing = bench->state;

        if (!handing)
                return;
        bench_area_deinit(&handing->source);
        if (handing->n_made)
                (void)munmap(handing->n_made, BENCH_PAGE_BYTES);
        free(handing);
        bench->state = NULL;
}

static uint64_t suite_store_bytes(const Bench *bench)
{
        uint64_t n_large = bench->size_bytes / MIB < N_LARGE ? bench->size_bytes / MIB : N_LARGE;

        return n_large * (MIB + BENCH_HUGE_BYTES) + 64 * MIB;
}

static uint64_t suite_other_bytes(const Bench *bench)
{
        return suite_store_bytes(bench);
}

/* Who makes it does not wait until others can see it: they say so themselves. */
#define HANDOFF(case_name, case_kind, n_waiters, size, ...)                                                            \
        {                                                                                                              \
                .name = case_name, .kind = case_kind, .block_bytes = n_waiters, .size_bytes = size,                    \
                .unit = BENCH_UNIT_US, .has_laps = true, .is_self_measured = true, .setup = handoff_setup,             \
                .teardown = handoff_teardown, .ours = hand_ours, .clean = clean_ours, .theirs = hand_theirs,           \
                .clean_theirs = clean_theirs, .is_pipelined = true, __VA_ARGS__                                        \
        }
#define ALL(size, ...)                                                                                                 \
        HANDOFF("one-memfd", KIND_MEMFD, 1, size, __VA_ARGS__), HANDOFF("one-file", KIND_FILE, 1, size, __VA_ARGS__),  \
                HANDOFF("one-file-poll", KIND_FILE | KIND_POLL, 1, size, __VA_ARGS__),                                 \
                HANDOFF("eight-memfd", KIND_MEMFD, N_EIGHT, size, __VA_ARGS__),                                        \
                HANDOFF("eight-memfd-first", KIND_MEMFD | KIND_FIRST, N_EIGHT, size, __VA_ARGS__),                     \
                HANDOFF("eight-file", KIND_FILE, N_EIGHT, size, __VA_ARGS__),                                          \
                HANDOFF("eight-file-first", KIND_FILE | KIND_FIRST, N_EIGHT, size, __VA_ARGS__)
#define TRUSTED .is_trusted = true, .pages = BENCH_PAGES_2M

static const BenchCase cases[] = {
        ALL(SMALL_BYTES, .is_trusted = false),
        ALL(MIB, .is_trusted = false),
        ALL(SMALL_BYTES, TRUSTED),
        ALL(MIB, TRUSTED),
};

const BenchSuite bench_suite_handoff = {
        .name = "handoff",
        .summary = "put here, until one process that waits, asleep or polling, or the last (or first) of eight, has "
                   "the bytes",
        .cases = cases,
        .n_cases = sizeof(cases) / sizeof(cases[0]),
        .store_bytes = suite_store_bytes,
        .other_bytes = suite_other_bytes,
        .open = suite_open,
        .close = suite_close,
};
