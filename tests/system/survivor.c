/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the stories about a service do with a store, through the public library alone. The bytes of every object follow
 * from its name and its version, so whoever reads one knows what must be there.
 *
 *   survivor fill N [LARGE-BYTES]   puts N objects of 100 bytes to 64 MiB, and one more of LARGE-BYTES
 *   survivor check N [LARGE-BYTES]  each is there, to the last byte
 *   survivor read N FILE            gets them at random, and compares, until SIGTERM; FILE exists once it does
 *   survivor write FILE             replaces a few names again and again until SIGTERM; FILE has what was acknowledged
 *   survivor written FILE           each of those is what was acknowledged last, or what was under way then
 *   survivor crowd N                N processes that connect at the same time, and each gets an object
 *   survivor answer                 connects and is answered: prints the microseconds that took
 *   survivor unruly                 speaks to the socket as no client does
 *
 * Exit status 0: all was as it must be. What was not is on stderr, the first few.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <folio/folio.h>

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define LARGE_NAME "fixed-large"
#define N_LIVE 64u
#define COMPLAINTS_MAX 10u
#define PAGE_BYTES 4096u

static volatile sig_atomic_t is_over;
static unsigned n_complaints;

static void on_sigterm(int number)
{
        (void)number;
        is_over = 1;
}

static void complain(const char *what, const char *name, int error)
{
        if (n_complaints++ < COMPLAINTS_MAX)
                fprintf(stderr, "survivor: %s: %s: %s (%s)\n", name, what, error < 0 ? folio_strerror(error) : "-",
                        error < 0 ? folio_strerror_full() : "-");
}

static uint64_t mix(uint64_t x)
{
        x ^= x >> 31;
        x *= UINT64_C(0x7fb5d329728ea185);
        x ^= x >> 27;
        x *= UINT64_C(0x81dadef4bc2dd44d);
        return x ^ x >> 33;
}

static uint64_t now_ns(void)
{
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* --- what an object is ----------------------------------------------------------------------------------------- */

/* Most are small; of a thousand three have 1 MiB, and of all of them a handful 64 MiB. */
static uint64_t size_of(unsigned i)
{
        if (i % 2000 == 1999)
                return 64 * MIB;
        if (i % 333 == 0)
                return MIB;
        if (i % 40 == 0)
                return 64 * KIB + i;
        if (i % 10 == 0)
                return 4 * KIB;
        return 100 + mix(i) % 1900;
}

static uint64_t seed_of(const char *name, uint64_t version)
{
        uint64_t seed = mix(version + 1);

        for (const char *c = name; *c; c++)
                seed = mix(seed ^ (unsigned char)*c);
        return seed;
}

static uint64_t word_at(uint64_t seed, uint64_t n)
{
        return mix(seed + n * UINT64_C(0x9e3779b97f4a7c15));
}

/* @offset is a multiple of 8. */
static void make_bytes(uint64_t seed, uint64_t offset, char *bytes, size_t n_bytes)
{
        for (size_t i = 0; i < n_bytes; i += 8) {
                uint64_t word = word_at(seed, (offset + i) / 8);

                memcpy(bytes + i, &word, n_bytes - i < 8 ? n_bytes - i : 8);
        }
}

static bool are_bytes(uint64_t seed, uint64_t offset, const char *bytes, size_t n_bytes)
{
        for (size_t i = 0; i < n_bytes; i += 8) {
                uint64_t word = word_at(seed, (offset + i) / 8);

                if (memcmp(bytes + i, &word, n_bytes - i < 8 ? n_bytes - i : 8) != 0)
                        return false;
        }
        return true;
}

/* Of a large one, both ends and some pages between, unless all is wanted. */
static bool is_right(struct folio_object *object, uint64_t seed, uint64_t size, bool want_all, uint64_t dice)
{
        const char *data = folio_object_data(object);

        if (folio_object_size(object) != size || (size > 0 && !data))
                return false;
        if (want_all || size <= 64 * KIB)
                return are_bytes(seed, 0, data, size);
        for (unsigned i = 0; i < 8; i++) {
                uint64_t n_pages = size / PAGE_BYTES, page;

                dice = mix(dice + i);
                page = i == 0 ? 0 : i == 1 ? n_pages - 1 : dice % n_pages;
                if (!are_bytes(seed, page * PAGE_BYTES, data + page * PAGE_BYTES, PAGE_BYTES))
                        return false;
        }
        return true;
}

static struct folio_client *open_client(const char *name, uint32_t flags)
{
        struct folio_open_options options = { .struct_bytes = sizeof(options), .client_name = name, .flags = flags };
        struct folio_client *client;
        int r = folio_client_open(&options, &client);

        if (r < 0) {
                fprintf(stderr, "survivor: opening: %s\n", folio_strerror_full());
                exit(1);
        }
        return client;
}

static int finish(void)
{
        if (n_complaints > COMPLAINTS_MAX)
                fprintf(stderr, "survivor: %u more\n", n_complaints - COMPLAINTS_MAX);
        return n_complaints > 0;
}

/* --- fill, check ----------------------------------------------------------------------------------------------- */

static int put_one(struct folio_client *client, const char *name, uint64_t version, uint64_t size, uint32_t flags)
{
        struct folio_create_options options = { .struct_bytes = sizeof(options), .flags = flags };
        uint64_t seed = seed_of(name, version), offset = 0;
        struct folio_object *object;
        static char bytes[MIB];
        int r;

        if (size <= sizeof(bytes)) {
                make_bytes(seed, 0, bytes, size);
                return folio_put(client, name, bytes, size, &options);
        }
        r = folio_create(client, name, size, &options, &object);
        for (; r == 0 && offset < size; offset += sizeof(bytes)) {
                size_t n = size - offset < sizeof(bytes) ? size - offset : sizeof(bytes);

                make_bytes(seed, offset, bytes, n);
                r = folio_object_write(object, offset, bytes, n);
        }
        if (offset == 0)
                return r;
        if (r == 0)
                r = folio_object_seal(object);
        folio_object_release(object);
        return r;
}

static void name_of(unsigned i, char name[32])
{
        snprintf(name, 32, "fixed-%u", i);
}

static int fill(unsigned n, uint64_t large_bytes)
{
        struct folio_client *client = open_client("filler", 0);
        char name[32];
        int r = 0;

        for (unsigned i = 0; i < n && r == 0; i++) {
                name_of(i, name);
                r = put_one(client, name, 0, size_of(i), 0);
        }
        if (r == 0 && large_bytes > 0) {
                snprintf(name, sizeof(name), LARGE_NAME);
                r = put_one(client, name, 0, large_bytes, 0);
        }
        if (r == 0)
                r = folio_flush(client);
        if (r < 0)
                complain("put", name, r);
        folio_client_unref(client);
        return finish();
}

static void check_one(struct folio_client *client, const char *name, uint64_t size, bool want_all, uint64_t dice)
{
        struct folio_object *object;
        int r = folio_get(client, name, 0, 0, &object);

        if (r < 0) {
                complain("get", name, r);
                return;
        }
        if (!is_right(object, seed_of(name, 0), size, want_all, dice))
                complain("wrong bytes", name, 0);
        folio_object_release(object);
}

static int check(unsigned n, uint64_t large_bytes)
{
        struct folio_client *client = open_client("checker", 0);
        char name[32];

        for (unsigned i = 0; i < n; i++) {
                name_of(i, name);
                check_one(client, name, size_of(i), true, 0);
        }
        if (large_bytes > 0)
                check_one(client, LARGE_NAME, large_bytes, true, 0);
        folio_client_unref(client);
        return finish();
}

static int read_on(unsigned n, const char *path)
{
        struct folio_client *client = open_client("reader", 0);
        uint64_t n_read = 0, dice = mix((uint64_t)getpid());
        char name[32];
        int fd;

        while (!is_over) {
                unsigned i = (unsigned)((dice = mix(dice + n_read)) % n);

                name_of(i, name);
                check_one(client, name, size_of(i), false, dice);
                if (n_read++ == 0) {
                        fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
                        if (fd < 0)
                                complain(strerror(errno), path, 0);
                        else
                                close(fd);
                }
        }
        printf("%" PRIu64 " read, %u wrong\n", n_read, n_complaints);
        folio_client_unref(client);
        return finish();
}

/* --- write, written -------------------------------------------------------------------------------------------- */

/* In a file, shared: also what is under way when this process is killed is known. */
typedef struct Ledger {
        struct {
                _Atomic uint64_t n_begun;        /* versions begin with 1 */
                _Atomic uint64_t n_done;         /* acknowledged */
        } names[N_LIVE];
        _Atomic uint64_t n_acknowledged;
        _Atomic uint64_t n_refused;              /* that were said not to be done, or not known */
} Ledger;

static Ledger *open_ledger(const char *path)
{
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        Ledger *ledger = MAP_FAILED;

        if (fd >= 0 && ftruncate(fd, sizeof(*ledger)) == 0)
                ledger = mmap(NULL, sizeof(*ledger), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (ledger == MAP_FAILED) {
                fprintf(stderr, "survivor: %s: %s\n", path, strerror(errno));
                exit(1);
        }
        close(fd);
        return ledger;
}

/* Small ones mostly, as is done; each eighth name has a region of its own. */
static uint64_t live_size_of(unsigned i, uint64_t version)
{
        return i % 8 == 7 ? 2 * MIB : 64 + mix(version ^ i) % 4000;
}

static int write_on(const char *path)
{
        struct folio_client *client = open_client("writer", FOLIO_OPEN_VISIBLE);
        Ledger *ledger = open_ledger(path);
        char name[32];

        for (uint64_t n = 0; !is_over; n++) {
                unsigned i = (unsigned)(n % N_LIVE);
                uint64_t version = ledger->names[i].n_begun + 1;
                int r;

                snprintf(name, sizeof(name), "live-%u", i);
                ledger->names[i].n_begun = version;
                r = put_one(client, name, version, live_size_of(i, version), FOLIO_REPLACE);
                if (r == 0) {
                        ledger->names[i].n_done = version;
                        ledger->n_acknowledged++;
                } else if (r == FOLIO_E_DAEMON_GONE || r == FOLIO_E_TIMEOUT || r == FOLIO_E_WRITER_DIED) {
                        ledger->n_refused++;
                } else {
                        complain("put", name, r);
                }
        }
        printf("%" PRIu64 " acknowledged, %" PRIu64 " not\n", ledger->n_acknowledged, ledger->n_refused);
        folio_client_unref(client);
        return finish();
}

static int written(const char *path)
{
        struct folio_client *client = open_client("checker", 0);
        Ledger *ledger = open_ledger(path);
        struct folio_object *object;
        char name[32];

        for (unsigned i = 0; i < N_LIVE; i++) {
                uint64_t version = ledger->names[i].n_done;
                bool is_one = false;
                int r;

                snprintf(name, sizeof(name), "live-%u", i);
                r = folio_get(client, name, 0, 0, &object);
                if (r < 0) {
                        if (version > 0)
                                complain("acknowledged, and not there", name, r);
                        continue;
                }
                for (uint64_t v = version > 0 ? version : 1; !is_one && v <= ledger->names[i].n_begun; v++)
                        is_one = is_right(object, seed_of(name, v), live_size_of(i, v), true, 0);
                if (!is_one)
                        complain("neither what was acknowledged last nor what was under way", name, 0);
                folio_object_release(object);
        }
        folio_client_unref(client);
        return finish();
}

/* --- connections ----------------------------------------------------------------------------------------------- */

static void crowd_one(int go_fd)
{
        struct folio_client *client;
        char byte;

        if (read(go_fd, &byte, 1) != 0)
                _exit(2);
        client = open_client("crowd", 0);
        check_one(client, "fixed-1", size_of(1), true, 0);
        folio_client_unref(client);
        _exit(finish());
}

static int crowd(unsigned n)
{
        int go[2], status;

        if (pipe2(go, O_CLOEXEC) < 0)
                return 1;
        for (unsigned i = 0; i < n; i++) {
                pid_t pid = fork();

                if (pid < 0)
                        return 1;
                if (pid == 0) {
                        close(go[1]);
                        crowd_one(go[0]);
                }
        }
        printf("ready\n");
        fflush(stdout);
        close(go[1]);
        for (unsigned i = 0; i < n; i++)
                if (wait(&status) < 0 || status != 0)
                        complain("a client failed", "crowd", 0);
        return finish();
}

static int answer(void)
{
        uint64_t begun = now_ns();
        struct folio_client *client = open_client("asker", FOLIO_OPEN_TOOL);
        struct folio_status entry = { .struct_bytes = sizeof(entry) };
        int r = folio_status_get(client, &entry, 1);

        if (r < 0)
                complain("status", "asker", r);
        printf("%" PRIu64 "\n", (now_ns() - begun) / 1000);
        folio_client_unref(client);
        return finish();
}

static int unruly(void)
{
        struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "/run/folio/folio.sock" };
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        char byte;

        if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
            send(fd, "\xff\xff\xff\xff what is this", 17, MSG_NOSIGNAL) < 0)
                return 1;
        /* It hangs up, perhaps after a reply. */
        while (recv(fd, &byte, 1, 0) > 0)
                ;
        close(fd);
        return 0;
}

/* --- the whole ------------------------------------------------------------------------------------------------- */

static uint64_t number(int argc, char **argv, int i)
{
        return i < argc ? strtoull(argv[i], NULL, 10) : 0;
}

int main(int argc, char **argv)
{
        const char *verb = argc > 1 ? argv[1] : "";
        struct sigaction action = { .sa_handler = on_sigterm };

        sigaction(SIGTERM, &action, NULL);
        if (strcmp(verb, "fill") == 0 && argc > 2)
                return fill((unsigned)number(argc, argv, 2), number(argc, argv, 3));
        if (strcmp(verb, "check") == 0 && argc > 2)
                return check((unsigned)number(argc, argv, 2), number(argc, argv, 3));
        if (strcmp(verb, "read") == 0 && argc > 3 && number(argc, argv, 2) > 0)
                return read_on((unsigned)number(argc, argv, 2), argv[3]);
        if (strcmp(verb, "write") == 0 && argc > 2)
                return write_on(argv[2]);
        if (strcmp(verb, "written") == 0 && argc > 2)
                return written(argv[2]);
        if (strcmp(verb, "crowd") == 0 && argc > 2)
                return crowd((unsigned)number(argc, argv, 2));
        if (strcmp(verb, "answer") == 0)
                return answer();
        if (strcmp(verb, "unruly") == 0)
                return unruly();
        fprintf(stderr, "usage: survivor fill|check|read|write|written|crowd|answer|unruly ...\n");
        return 2;
}
