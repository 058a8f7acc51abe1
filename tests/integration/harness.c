/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The harness of the integration tests. One test runs at a time: what it has started stands in two small tables, and
 * the teardown ends whatever is still there, by its pid. Daemons and children also end with this process.
 */
#include "tests/integration/harness.h"

#include "base/macro.h"

#include <dirent.h>
#include <grp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum {
        DAEMONS_MAX = 8,
        CHILDREN_MAX = 64,
        OPTIONS_MAX = 40,
        WAIT_MS_MAX = 60000,
};

typedef struct Started {
        Foliod foliod;
        bool is_used;
        bool is_kept;                /* the pid is that of a keeper */
        size_t n_options;
        char *options[OPTIONS_MAX];
} Started;

static Started daemons[DAEMONS_MAX];
static Child children[CHILDREN_MAX];
static unsigned n_fds_before;
static bool am_child;

void harness_pause(void)
{
        (void)usleep(2000);
}

void harness_check(bool is_true, const char *what, const char *file, int line)
{
        if (is_true)
                return;
        fprintf(stderr, "# %s:%d: CHECK(%s) failed; libfolio says \"%s\"\n", file, line, what, folio_strerror_full());
        if (!am_child)
                fail_msg("%s:%d: %s", file, line, what);
        _exit(1);
}

void harness_check_ok(long answer, const char *what, const char *file, int line)
{
        if (answer == 0)
                return;
        fprintf(stderr, "# %s:%d: %s answered %ld (%s): \"%s\"\n", file, line, what, answer, folio_strerror((int)answer),
                folio_strerror_full());
        if (!am_child)
                fail_msg("%s:%d: %s", file, line, what);
        _exit(1);
}

void harness_assert_ok(long answer, const char *what, const char *file, int line)
{
        if (answer != 0)
                fail_msg("%s:%d: %s answered %ld (%s): \"%s\"", file, line, what, answer, folio_strerror((int)answer),
                         folio_strerror_full());
}

/* --- a private foliod ------------------------------------------------------------------------------------------------ */

static void daemon_exec(const Started *started, int ready_fd)
{
        const char *path = getenv("FOLIOD");
        char *argv[OPTIONS_MAX + 8];
        char ready_text[16];
        bool says_keeper = false;
        size_t n = 0;
        int log;

        for (size_t i = 0; i < started->n_options; i++)
                says_keeper |= strncmp(started->options[i], "--keeper", 8) == 0;
        /* One that is killed leaves those behind that it keeps for. */
        (void)prctl(PR_SET_PDEATHSIG, says_keeper || started->is_kept ? SIGTERM : SIGKILL);
        log = open(started->foliod.log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (log >= 0)
                (void)dup2(log, STDERR_FILENO);
        (void)fcntl(ready_fd, F_SETFD, 0);
        (void)snprintf(ready_text, sizeof(ready_text), "%d", ready_fd);
        argv[n++] = (char *)(path ? path : "foliod");
        argv[n++] = (char *)"--socket";
        argv[n++] = (char *)started->foliod.socket_path;
        argv[n++] = (char *)"--ready-fd";
        argv[n++] = ready_text;
        for (size_t i = 0; i < started->n_options; i++)
                argv[n++] = started->options[i];
        if (!says_keeper) {
                argv[n++] = (char *)"--keeper";
                argv[n++] = (char *)(started->is_kept ? "process" : "none");
        }
        argv[n] = NULL;
        execvp(argv[0], argv);
        fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
        _exit(127);
}

static void show_log(const Foliod *foliod)
{
        FILE *log = fopen(foliod->log_path, "re");
        char line[512];

        if (!log)
                return;
        while (fgets(line, sizeof(line), log))
                fprintf(stderr, "# foliod: %s", line);
        fclose(log);
}

static void daemon_launch(Started *started)
{
        Foliod *foliod = &started->foliod;
        struct pollfd ready;
        char byte;
        int ends[2];

        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        fflush(NULL);
        foliod->pid = fork();
        assert_true(foliod->pid >= 0);
        if (foliod->pid == 0)
                daemon_exec(started, ends[1]);
        close(ends[1]);
        (void)snprintf(foliod->pid_text, sizeof(foliod->pid_text), "%d", (int)foliod->pid);
        ready = (struct pollfd){ .fd = ends[0], .events = POLLIN };
        if (poll(&ready, 1, WAIT_MS_MAX) != 1 || read(ends[0], &byte, 1) != 1) {
                close(ends[0]);
                show_log(foliod);
                fail_msg("foliod did not start (FOLIOD=%s)", getenv("FOLIOD"));
        }
        close(ends[0]);
}

static Started *start_new(bool is_kept, const char *option, va_list options)
{
        char directory[] = "/tmp/folio-test-XXXXXX";
        Started *started = NULL;

        for (size_t i = 0; i < DAEMONS_MAX && !started; i++)
                if (!daemons[i].is_used)
                        started = &daemons[i];
        assert_non_null(started);
        *started = (Started){ .is_used = true, .is_kept = is_kept };
        assert_non_null(mkdtemp(directory));
        (void)snprintf(started->foliod.directory, sizeof(started->foliod.directory), "%s", directory);
        (void)snprintf(started->foliod.socket_path, sizeof(started->foliod.socket_path), "%s/s", directory);
        (void)snprintf(started->foliod.log_path, sizeof(started->foliod.log_path), "%s/log", directory);
        /* Other users must get as far as the socket. */
        assert_int_equal(chmod(started->foliod.directory, 0755), 0);
        for (; option; option = va_arg(options, const char *)) {
                assert_true(started->n_options < OPTIONS_MAX);
                started->options[started->n_options++] = strdup(option);
        }
        return started;
}

Foliod *foliod_start(const char *option, ...)
{
        Started *started;
        va_list options;

        va_start(options, option);
        started = start_new(false, option, options);
        va_end(options);
        daemon_launch(started);
        return &started->foliod;
}

Foliod *foliod_start_kept(const char *option, ...)
{
        Started *started;
        va_list options;

        va_start(options, option);
        started = start_new(true, option, options);
        va_end(options);
        daemon_launch(started);
        return &started->foliod;
}

/* 0: none now. */
static pid_t find_child_of(pid_t pid)
{
        char path[64];
        FILE *stream;
        int child = 0;

        (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
        stream = fopen(path, "re");
        if (!stream)
                return 0;
        if (fscanf(stream, "%d", &child) != 1)
                child = 0;
        fclose(stream);
        return child;
}

pid_t foliod_serving_pid(const Foliod *foliod)
{
        pid_t child;

        AWAIT((child = find_child_of(foliod->pid)) > 0);
        return child;
}

void foliod_start_again(Foliod *foliod)
{
        assert_int_equal(foliod->pid, 0);
        daemon_launch((Started *)(void *)foliod);
}

/* Its wait status; kills it where it does not end by itself. */
static int await_end(pid_t pid)
{
        int status = -1;

        for (unsigned i = 0; i < WAIT_MS_MAX / 2; i++) {
                if (waitpid(pid, &status, WNOHANG) == pid)
                        return status;
                harness_pause();
        }
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, &status, 0);
        fprintf(stderr, "# process %d did not end by itself\n", (int)pid);
        return status;
}

void foliod_kill(Foliod *foliod)
{
        pid_t child;

        if (foliod->pid == 0)
                return;
        /* Stopped, a keeper starts no other while we look. */
        (void)kill(foliod->pid, SIGSTOP);
        child = ((Started *)(void *)foliod)->is_kept ? find_child_of(foliod->pid) : 0;
        if (child > 0)
                (void)kill(child, SIGKILL);
        (void)kill(foliod->pid, SIGKILL);
        (void)waitpid(foliod->pid, NULL, 0);
        foliod->pid = 0;
}

static void daemon_forget(Started *started)
{
        DIR *directory = opendir(started->foliod.directory);
        char path[512];

        if (directory) {
                for (struct dirent *entry; (entry = readdir(directory));) {
                        (void)snprintf(path, sizeof(path), "%s/%s", started->foliod.directory, entry->d_name);
                        (void)unlink(path);
                }
                closedir(directory);
                (void)rmdir(started->foliod.directory);
        }
        for (size_t i = 0; i < started->n_options; i++)
                free(started->options[i]);
        *started = (Started){ 0 };
}

void foliod_stop(Foliod *foliod)
{
        int status = 0;

        if (foliod->pid) {
                (void)kill(foliod->pid, SIGTERM);
                status = await_end(foliod->pid);
                foliod->pid = 0;
                if (status)
                        show_log(foliod);
        }
        daemon_forget((Started *)(void *)foliod);
        if (status)
                fail_msg("foliod ended with wait status 0x%x", (unsigned)status);
}

static struct folio_client *connect_to(const Foliod *foliod, uint32_t open_flags, int *ret_error)
{
        struct folio_open_options options = {
                .struct_bytes = sizeof(options),
                .address = foliod->socket_path,
                .flags = open_flags,
                .timeout_ms = 20000,
        };
        struct folio_client *client = NULL;

        *ret_error = folio_client_open(&options, &client);
        return client;
}

struct folio_client *foliod_connect_with(const Foliod *foliod, uint32_t open_flags)
{
        int error;
        struct folio_client *client = connect_to(foliod, open_flags, &error);

        harness_assert_ok(error, "folio_client_open()", __FILE__, __LINE__);
        return client;
}

struct folio_client *foliod_connect(const Foliod *foliod)
{
        return foliod_connect_with(foliod, FOLIO_OPEN_VISIBLE);
}

uint64_t foliod_fact(struct folio_client *client, const char *name)
{
        struct folio_status facts[128];
        int n;

        memset(facts, 0, sizeof(facts));
        facts[0].struct_bytes = sizeof(facts[0]);
        n = folio_status_get(client, facts, 128);
        if (n < 0)
                fail_msg("status: %s", folio_strerror_full());
        for (int i = 0; i < n && i < 128; i++)
                if (strcmp(facts[i].name, name) == 0)
                        return facts[i].value;
        fail_msg("no fact %s", name);
        return 0;
}

static unsigned count_entries(const char *path)
{
        DIR *directory = opendir(path);
        unsigned n = 0;

        if (!directory)
                return 0;
        while (readdir(directory))
                n++;
        closedir(directory);
        return n - 3; /* the two dots, and the one we read by (or, of another process, a constant) */
}

unsigned harness_count_own_fds(void)
{
        return count_entries("/proc/self/fd");
}

unsigned foliod_count_fds(const Foliod *foliod)
{
        char path[64];

        (void)snprintf(path, sizeof(path), "/proc/%s/fd", foliod->pid_text);
        return count_entries(path);
}

unsigned foliod_count_mappings(const Foliod *foliod)
{
        char path[64], line[512];
        unsigned n = 0;
        FILE *maps;

        (void)snprintf(path, sizeof(path), "/proc/%s/maps", foliod->pid_text);
        maps = fopen(path, "re");
        if (!maps)
                return 0;
        while (fgets(line, sizeof(line), maps))
                n++;
        fclose(maps);
        return n;
}

/* --- children --------------------------------------------------------------------------------------------------------- */

Child *child_start(const Foliod *foliod, void (*run)(Child *child), void *userdata)
{
        Child *child = NULL;
        int ends[2];

        for (size_t i = 0; i < CHILDREN_MAX && !child; i++)
                if (children[i].pid == 0)
                        child = &children[i];
        assert_non_null(child);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
        *child = (Child){ .foliod = foliod, .userdata = userdata };
        fflush(NULL);
        child->pid = fork();
        assert_true(child->pid >= 0);
        if (child->pid == 0) {
                (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
                am_child = true;
                child->socket = ends[1];
                close(ends[0]);
                run(child);
                fflush(NULL);
                _exit(0);
        }
        child->socket = ends[0];
        close(ends[1]);
        return child;
}

static void give_up(const char *what)
{
        if (!am_child)
                fail_msg("%s", what);
        _exit(2);
}

void child_say(Child *child, uint64_t number)
{
        if (send(child->socket, &number, sizeof(number), MSG_NOSIGNAL) != sizeof(number))
                give_up("the other process does not listen");
}

uint64_t child_hear(Child *child)
{
        struct pollfd readable = { .fd = child->socket, .events = POLLIN };
        uint64_t number = 0;

        if (poll(&readable, 1, WAIT_MS_MAX) != 1 || recv(child->socket, &number, sizeof(number), MSG_WAITALL) != sizeof(number))
                give_up("the other process is gone or says nothing");
        return number;
}

static void child_forget(Child *child)
{
        close(child->socket);
        *child = (Child){ 0 };
}

void child_finish(Child *child)
{
        int status = await_end(child->pid);

        child_forget(child);
        if (status)
                fail_msg("a child ended with wait status 0x%x", (unsigned)status);
}

void child_kill(Child *child)
{
        (void)kill(child->pid, SIGKILL);
        (void)waitpid(child->pid, NULL, 0);
        child_forget(child);
}

struct folio_client *child_connect_with(const Child *child, uint32_t open_flags)
{
        int error;
        struct folio_client *client = connect_to(child->foliod, open_flags, &error);

        harness_check_ok(error, "folio_client_open()", __FILE__, __LINE__);
        return client;
}

struct folio_client *child_connect(const Child *child)
{
        return child_connect_with(child, FOLIO_OPEN_VISIBLE);
}

void child_become(uid_t uid, gid_t gid)
{
        CHECK(setgroups(0, NULL) == 0);
        CHECK(setresgid(gid, gid, gid) == 0);
        CHECK(setresuid(uid, uid, uid) == 0);
        /* The change of user has taken the parent's death away as a signal. */
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* --- this and that ------------------------------------------------------------------------------------------------------ */

static inline uint64_t pattern(uint64_t seed, uint64_t word)
{
        uint64_t x = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + word * UINT64_C(0xd1b54a32d192ed03);

        x ^= x >> 29;
        return x * UINT64_C(0xbf58476d1ce4e5b9);
}

void harness_fill(void *buffer, size_t n_bytes, uint64_t seed)
{
        uint8_t *bytes = buffer;

        for (size_t i = 0; i < n_bytes; i += 8) {
                uint64_t word = pattern(seed, i / 8);

                memcpy(bytes + i, &word, n_bytes - i < 8 ? n_bytes - i : 8);
        }
}

bool harness_is_filled(const void *buffer, size_t n_bytes, uint64_t seed, size_t offset)
{
        const uint8_t *bytes = buffer;

        for (size_t i = 0; i < n_bytes;) {
                size_t place = offset + i, in_word = place % 8, n = 8 - in_word;
                uint64_t word = pattern(seed, place / 8);

                if (n > n_bytes - i)
                        n = n_bytes - i;
                if (memcmp(bytes + i, (uint8_t *)&word + in_word, n) != 0)
                        return false;
                i += n;
        }
        return true;
}

int harness_setup(void **state)
{
        (void)state;
        n_fds_before = harness_count_own_fds();
        return 0;
}

int harness_teardown(void **state)
{
        bool was_left = false;

        (void)state;
        for (size_t i = 0; i < CHILDREN_MAX; i++)
                if (children[i].pid) {
                        child_kill(&children[i]);
                        was_left = true;
                }
        for (size_t i = 0; i < DAEMONS_MAX; i++)
                if (daemons[i].is_used) {
                        show_log(&daemons[i].foliod);
                        foliod_kill(&daemons[i].foliod);
                        daemon_forget(&daemons[i]);
                        was_left = true;
                }
        if (!was_left && harness_count_own_fds() != n_fds_before) {
                fprintf(stderr, "# descriptors before the test: %u, after it: %u\n", n_fds_before, harness_count_own_fds());
                return -1;
        }
        return 0;
}

#define HARNESS_BLOCK_BYTES (UINT64_C(1) << 20)

void harness_make_large(struct folio_client *client, const char *name, uint64_t n_bytes, uint32_t flags)
{
        struct folio_create_options options = { .struct_bytes = sizeof(options), .flags = flags };
        uint8_t *block = malloc(HARNESS_BLOCK_BYTES);
        struct folio_object *object;

        assert_non_null(block);
        ASSERT_OK(folio_create(client, name, n_bytes, &options, &object));
        for (uint64_t at = 0; at < n_bytes; at += HARNESS_BLOCK_BYTES) {
                harness_fill(block, HARNESS_BLOCK_BYTES, at);
                ASSERT_OK(folio_object_write(object, at, block, (size_t)MIN(n_bytes - at, HARNESS_BLOCK_BYTES)));
        }
        ASSERT_OK(folio_object_seal(object));
        ASSERT_OK(folio_object_release(object));
        free(block);
}
