/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Immutable is a claim about the kernel: whoever tries, by whatever way the kernel has, cannot change a byte of what
 * stat calls kernel-sealed; and where a kernel cannot promise it, nothing claims it.
 */
#include "tests/integration/alive.h"
#include "tests/integration/program.h"
#include "tests/integration/raw.h"

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>

#define MIB (UINT64_C(1) << 20)

#ifndef MADV_REMOVE
#define MADV_REMOVE 9
#endif

/* Every way to change what @fd shows, none of which may work. */
static void attack_fd(int fd, uint64_t n_bytes)
{
        uint8_t *data;
        char path[64], byte = 0x66;
        struct iovec piece = { .iov_base = &byte, .iov_len = 1 };
        int again;

        CHECK(pwrite(fd, &byte, 1, 0) != 1);
        CHECK(pwritev(fd, &piece, 1, 0) != 1);
        CHECK(write(fd, &byte, 1) != 1);
        CHECK(ftruncate(fd, 0) != 0);
        CHECK(ftruncate(fd, (off_t)n_bytes * 2 + 4096) != 0);
        CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) != 0);
        CHECK(fallocate(fd, FALLOC_FL_ZERO_RANGE, 0, 4096) != 0);
        CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
        data = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
        if (data != MAP_FAILED) {
                CHECK(mprotect(data, 4096, PROT_READ | PROT_WRITE) != 0);
                CHECK(madvise(data, 4096, MADV_REMOVE) != 0);
                CHECK(munmap(data, 4096) == 0);
        }
        /* A private mapping is a copy, and stays one. */
        data = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
        if (data != MAP_FAILED) {
                memset(data, 0x66, 4096);
                CHECK(munmap(data, 4096) == 0);
        }
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        again = open(path, O_RDWR | O_CLOEXEC);
        if (again >= 0) {
                CHECK(pwrite(again, &byte, 1, 0) != 1);
                CHECK(ftruncate(again, 0) != 0);
                CHECK(fallocate(again, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) != 0);
                CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) == MAP_FAILED);
                close(again);
        }
        CHECK(open(path, O_RDWR | O_TRUNC | O_CLOEXEC) < 0);
        CHECK(truncate(path, 0) != 0);
}

/* A mapping for reading, by every way to a writable one; a store to it must be a signal. */
static void attack_mapping(const void *data, size_t n_bytes)
{
        uintptr_t page = (uintptr_t)data & ~(uintptr_t)4095;
        size_t length = (uintptr_t)data + n_bytes - page;
        int memory, status;
        pid_t pid;
        char byte = 0x66;

        CHECK(mprotect((void *)page, length, PROT_READ | PROT_WRITE) != 0);
        CHECK(madvise((void *)page, 4096, MADV_REMOVE) != 0);
        memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
        if (memory >= 0) {
                CHECK(pwrite(memory, &byte, 1, (off_t)(uintptr_t)data) != 1);
                close(memory);
        }
        fflush(NULL);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
                (void)prctl(PR_SET_DUMPABLE, 0);
                (void)signal(SIGSEGV, SIG_DFL);
                *(volatile char *)(uintptr_t)data = byte;
                _exit(0);
        }
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

/* The same file among the daemon's descriptors, which may be open for writing there. */
static void attack_through_daemon(const Foliod *foliod, int fd, uint64_t n_bytes)
{
        char path[64];
        struct stat wanted, found;
        DIR *fds;

        CHECK(fstat(fd, &wanted) == 0);
        (void)snprintf(path, sizeof(path), "/proc/%s/fd", foliod->pid_text);
        fds = opendir(path);
        if (!fds)
                return; /* another user may not even look */
        for (struct dirent *entry; (entry = readdir(fds));) {
                int again;

                if (fstatat(dirfd(fds), entry->d_name, &found, 0) != 0 || found.st_ino != wanted.st_ino ||
                    found.st_dev != wanted.st_dev)
                        continue;
                again = openat(dirfd(fds), entry->d_name, O_RDWR | O_CLOEXEC);
                if (again < 0)
                        continue;
                attack_fd(again, n_bytes);
                close(again);
        }
        closedir(fds);
}

typedef struct Target {
        int fd;
        uint64_t n_bytes;
} Target;

typedef struct Attack {
        uid_t uid;
        size_t n_targets;
        Target targets[4];
} Attack;

static void attack(Child *child)
{
        const Attack *a = child->userdata;
        static const char *const names[] = { "sealed small", "sealed large" };
        struct folio_client *client;

        if (a->uid)
                child_become(a->uid, a->uid);
        client = child_connect(child);
        for (size_t i = 0; i < 2; i++) {
                struct folio_object *object;

                CHECK_OK(folio_get(client, names[i], 0, 0, &object));
                CHECK(folio_object_write(object, 0, "x", 1) == FOLIO_E_STATE);
                CHECK(folio_truncate(client, names[i], 0) == FOLIO_E_STATE);
                attack_mapping(folio_object_data(object), folio_object_size(object));
                CHECK_OK(folio_object_release(object));
        }
        for (size_t i = 0; i < a->n_targets; i++) {
                attack_fd(a->targets[i].fd, a->targets[i].n_bytes);
                attack_through_daemon(child->foliod, a->targets[i].fd, a->targets[i].n_bytes);
        }
        folio_client_unref(client);
}

/* By hand nobody knows a slot without the index, which has it. */
static ProtoItem find_slot(int index_fd, const char *key)
{
        ProtoItem item = { .flags = PROTO_ITEM_BY_SLOT, .slot = UINT32_MAX };
        const LayoutIndexHeader *header;
        const LayoutSlot *slots;
        struct stat file;
        uint8_t *index;

        CHECK(fstat(index_fd, &file) == 0);
        index = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_SHARED, index_fd, 0);
        CHECK(index != MAP_FAILED);
        header = (const void *)index;
        slots = (const void *)(index + header->slots_offset);
        for (uint32_t i = 0; i < atomic_load(&header->n_slots); i++)
                if (slots[i].state == LAYOUT_SLOT_SEALED && slots[i].key_bytes == strlen(key) &&
                    memcmp(slots[i].key, key, strlen(key)) == 0) {
                        item.slot = i;
                        item.generation = slots[i].generation;
                }
        CHECK(munmap(index, (size_t)file.st_size) == 0);
        CHECK(item.slot != UINT32_MAX);
        return item;
}

/* The descriptor by which a reader maps object @key of `default`. */
static Target region_of(Raw *raw, const char *key)
{
        uint32_t id = raw_namespace(raw, "default");
        ProtoItem item;
        Target target;

        CHECK(raw->n_fds == 2);
        item = find_slot(raw->fds[0], key);
        CHECK(raw_item(raw, VERB_REGION, id, item) == STATUS_OK);
        CHECK(raw->n_fds == 1 && raw->reply.items[0].descriptor == 1);
        target.n_bytes = raw->reply.items[0].region_bytes;
        target.fd = raw_take_fd(raw, 0);
        return target;
}

/* A reader of @uid (0: ours) cannot change a byte of anything that is kernel-sealed, nor of the index. */
static void attack_as(uid_t uid)
{
        struct folio_namespace open_to_all = { .struct_bytes = sizeof(open_to_all),
                                               .fields = FOLIO_NAMESPACE_FIELD_MODE,
                                               .mode = 0777,
                                               .name = "default" };
        Foliod *foliod = foliod_start("--budget", "64M", "--socket-mode", "0666", "--packed-protection", "seals",
                                      ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        static uint8_t bytes[3 * MIB], read[3 * MIB];
        Raw *raw = raw_open(foliod);
        Attack a = { .n_targets = 3, .uid = uid };
        Child *child;

        (void)raw_namespace(raw, "default");
        a.targets[2] = (Target){ .fd = raw_take_fd(raw, 0), .n_bytes = 4096 };
        ASSERT_OK(folio_namespace_set(client, &open_to_all));
        harness_fill(bytes, sizeof(bytes), 3);
        ASSERT_OK(folio_put(client, "sealed small", bytes, 5000, NULL));
        ASSERT_OK(folio_put(client, "sealed large", bytes, sizeof(bytes), NULL));
        ASSERT_OK(folio_stat(client, "sealed small", &stat));
        assert_int_equal(stat.protection, FOLIO_PROTECTION_KERNEL);
        assert_int_equal(stat.placement, FOLIO_PLACEMENT_PACKED);
        ASSERT_OK(folio_stat(client, "sealed large", &stat));
        assert_int_equal(stat.protection, FOLIO_PROTECTION_KERNEL);
        assert_int_equal(stat.placement, FOLIO_PLACEMENT_OWN);
        a.targets[0] = region_of(raw, "sealed small");
        a.targets[1] = region_of(raw, "sealed large");
        child = child_start(foliod, attack, &a);
        child_finish(child);
        ASSERT_OK(folio_read(client, "sealed small", 0, read, 5000));
        assert_memory_equal(read, bytes, 5000);
        ASSERT_OK(folio_read(client, "sealed large", 0, read, sizeof(read)));
        assert_memory_equal(read, bytes, sizeof(bytes));
        for (size_t i = 0; i < a.n_targets; i++)
                close(a.targets[i].fd);
        raw_close(raw);
        ASSERT_OK(folio_delete(client, "sealed small", 0));
        ASSERT_OK(folio_delete(client, "sealed large", 0));
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

static void test_reader_cannot_change_a_byte(void **state)
{
        (void)state;
        attack_as(0);
}

static void test_reader_of_another_uid_cannot_either(void **state)
{
        (void)state;
        if (getuid() != 0) {
                print_message("# only root can become another user\n");
                skip();
        }
        attack_as(65534);
}

static void keep_mapping(Child *child)
{
        /* A mapping made by the parent is ours too, after fork(). */
        child_say(child, 1);
        (void)child_hear(child);
}

/*
 * C06: a seal is refused while anything maps the object writable, and nothing claims to be immutable before it holds.
 */
static void test_c06_seal_while_mapped(void **state)
{
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod), *other = foliod_connect(foliod);
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        struct folio_object *object, *stranger;
        static uint8_t read[3 * MIB];
        Raw *raw = raw_open(foliod);
        uint32_t id = raw_namespace(raw, "default");
        ProtoItem item = { .key = raw_key("by hand"), .size_bytes = 3 * MIB };
        Child *child;
        void *data;
        int fd;

        (void)state;
        /* The library takes its own mapping away. */
        ASSERT_OK(folio_create(client, "mapped", 3 * MIB, NULL, &object));
        ASSERT_OK(folio_object_map_write(object, &data));
        harness_fill(data, 3 * MIB, 6);
        assert_int_equal(folio_get(other, "mapped", 0, 0, &stranger), FOLIO_E_WRITING);
        child = child_start(foliod, keep_mapping, NULL);
        assert_int_equal(child_hear(child), 1);
        assert_int_equal(folio_object_seal(object), FOLIO_E_WRITING);
        assert_true(strlen(folio_strerror_full()) > 0);
        ASSERT_OK(folio_stat(other, "mapped", &stat));
        assert_int_equal(stat.state, FOLIO_STATE_WRITING);
        assert_int_equal(stat.protection, FOLIO_PROTECTION_NONE);
        assert_int_equal(folio_exists(other, "mapped"), 0);
        child_say(child, 1);
        child_finish(child);
        ASSERT_OK(folio_object_seal(object));
        ASSERT_OK(folio_stat(other, "mapped", &stat));
        assert_int_equal(stat.state, FOLIO_STATE_SEALED);
        assert_int_equal(stat.protection, FOLIO_PROTECTION_KERNEL);
        ASSERT_OK(folio_read(other, "mapped", 0, read, sizeof(read)));
        assert_true(harness_is_filled(read, sizeof(read), 6, 0));
        ASSERT_OK(folio_object_release(object));

        /* One by hand keeps its mapping for ever: its own seal is all that it can hinder. */
        assert_int_equal(raw_item(raw, VERB_CREATE, id, item), STATUS_OK);
        item = (ProtoItem){ .flags = PROTO_ITEM_BY_SLOT,
                            .slot = raw->reply.items[0].slot,
                            .generation = raw->reply.items[0].generation };
        fd = raw_take_fd(raw, 0);
        data = mmap(NULL, 3 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_ptr_not_equal(data, MAP_FAILED);
        assert_int_equal(raw_item(raw, VERB_SEAL, id, item), STATUS_MAPPED);
        assert_int_equal(raw_item(raw, VERB_SEAL, id, item), STATUS_MAPPED);
        ASSERT_OK(folio_put(other, "of another", data, 3 * MIB, NULL));
        ASSERT_OK(folio_delete(other, "of another", 0));
        /* A mapping through which nobody writes hinders as well, as the kernel counts it. */
        assert_int_equal(mprotect(data, 3 * MIB, PROT_READ), 0);
        assert_int_equal(raw_item(raw, VERB_SEAL, id, item), STATUS_MAPPED);
        assert_int_equal(munmap(data, 3 * MIB), 0);
        assert_int_equal(raw_item(raw, VERB_SEAL, id, item), STATUS_OK);
        assert_true(fcntl(fd, F_GET_SEALS) & F_SEAL_WRITE);
        close(fd);
        raw_close(raw);
        ASSERT_OK(folio_delete(client, "by hand", 0));
        ASSERT_OK(folio_delete(client, "mapped", 0));
        folio_client_unref(other);
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

/*
 * C07: a private mapping does not leak into what others see; a kernel without FUTURE_WRITE is no reason to claim a
 * seal.
 */
static void test_c07_future_write(void **state)
{
        char directory[64], path[128], output[4096];
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        struct folio_client *client;
        Foliod *foliod = foliod_start("--budget", "64M", "--packed-protection", "seals", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        Raw *raw = raw_open(foliod);
        Target target;
        uint8_t *data;
        char text[16];
        int status;

        (void)state;
        client = foliod_connect(foliod);
        ASSERT_OK(folio_put(client, "shared", "0123456789", 10, NULL));
        target = region_of(raw, "shared");
        assert_true(fcntl(target.fd, F_GET_SEALS) & 0x10);
        data = mmap(NULL, target.n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, target.fd, 0);
        assert_ptr_not_equal(data, MAP_FAILED);
        memset(data, 0x77, 65536);
        ASSERT_OK(folio_read(client, "shared", 0, text, 10));
        assert_memory_equal(text, "0123456789", 10);
        assert_int_equal(munmap(data, target.n_bytes), 0);
        close(target.fd);
        raw_close(raw);
        ASSERT_OK(folio_delete(client, "shared", 0));
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);

        /* The kernel before 5.1. Asked for seals it says that there are none, and ends. */
        program_make_directory(directory);
        (void)snprintf(path, sizeof(path), "%s/s", directory);
        status = program_run_foliod("seal=OLD mount=EPERM", path, output, sizeof(output), "--budget", "64M",
                                    "--packed-protection", "seals", NULL);
        assert_int_equal(status, 1);
        assert_true(strlen(output) > 0);
        program_remove_directory(directory);

        /* Free to choose it finds another way (or ends as well), and does not call it a seal. */
        if (getuid() == 0) {
                program_set_world("seal=OLD");
                foliod = foliod_start("--budget", "64M", "--packed-protection", "mode", ALIVE_NO_POOL, NULL);
                program_set_world(NULL);
                before = alive_begin(foliod);
                client = foliod_connect(foliod);
                ASSERT_OK(folio_put(client, "by mode", "0123456789", 10, NULL));
                ASSERT_OK(folio_stat(client, "by mode", &stat));
                assert_int_equal(stat.protection, FOLIO_PROTECTION_MODE);
                ASSERT_OK(folio_delete(client, "by mode", 0));
                folio_client_unref(client);
                alive_check(&before);
                foliod_stop(foliod);
        }
}

static void use_store(Foliod *foliod)
{
        struct folio_client *client = foliod_connect(foliod);
        static uint8_t bytes[3 * MIB], read[3 * MIB];

        harness_fill(bytes, sizeof(bytes), 11);
        ASSERT_OK(folio_put(client, "small", bytes, 100, NULL));
        ASSERT_OK(folio_put(client, "large", bytes, sizeof(bytes), NULL));
        ASSERT_OK(folio_read(client, "small", 0, read, 100));
        assert_memory_equal(read, bytes, 100);
        ASSERT_OK(folio_read(client, "large", 0, read, sizeof(read)));
        assert_memory_equal(read, bytes, sizeof(bytes));
        ASSERT_OK(folio_delete(client, "small", 0));
        ASSERT_OK(folio_delete(client, "large", 0));
        folio_client_unref(client);
}

/* C11: vm.memfd_noexec at each of its values, a kernel that does not know the flags, and one that insists on them. */
static void test_c11_memfd_noexec(void **state)
{
        static const char *const worlds[] = { "memfd=OLD", "memfd=NOEXEC", "noexec=0", "noexec=1", "noexec=2" };

        (void)state;
        for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
                Foliod *foliod;

                if (strncmp(worlds[i], "noexec=", 7) == 0 &&
                    (getuid() != 0 || access("/proc/sys/vm/memfd_noexec", W_OK) != 0)) {
                        print_message("# %s: not as this user, on this kernel\n", worlds[i]);
                        continue;
                }
                program_set_world(worlds[i]);
                foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
                program_set_world(NULL);
                use_store(foliod);
                foliod_stop(foliod);
        }
}

/*
 * C12: memfd_create() is not there, or forbidden: foliod says which call it was, and ends; it does not die of trying.
 */
static void test_c12_no_memfd(void **state)
{
        static const char *const worlds[] = { "memfd=ENOSYS", "memfd=EPERM" };
        char directory[64], path[128], output[4096];
        Foliod *foliod;

        (void)state;
        program_make_directory(directory);
        (void)snprintf(path, sizeof(path), "%s/s", directory);
        for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
                int status = program_run_foliod(worlds[i], path, output, sizeof(output), "--budget", "64M", NULL);

                assert_int_equal(status, 1);
                if (!strstr(output, "memfd_create"))
                        fail_msg("%s: %s", worlds[i], output);
                assert_int_not_equal(access(path, F_OK), 0);
        }
        program_remove_directory(directory);
        program_set_world("memfd=KILL");
        foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        program_set_world(NULL);
        use_store(foliod);
        foliod_stop(foliod);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_reader_cannot_change_a_byte),
                INTEGRATION_TEST(test_reader_of_another_uid_cannot_either),
                INTEGRATION_TEST(test_c06_seal_while_mapped),
                INTEGRATION_TEST(test_c07_future_write),
                INTEGRATION_TEST(test_c11_memfd_noexec),
                INTEGRATION_TEST(test_c12_no_memfd),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
