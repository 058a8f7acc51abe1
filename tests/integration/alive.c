/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counting what the daemon holds. Mappings without a file are not counted: the allocator's arenas come and go with
 * the threads that use them.
 */
#include "tests/integration/alive.h"

#include <dirent.h>
#include <sys/stat.h>

enum {
        INODES_MAX = 65536,
        STEADY_LOOKS = 40, /* unchanged for so many looks of 2 ms */
        LOOKS_MAX = 5000,
        OWN_BYTES = 3 << 20,
};

static int compare_inodes(const void *a, const void *b)
{
        const uint64_t *x = a, *y = b;

        return *x < *y ? -1 : *x > *y;
}

typedef struct Inode {
        uint64_t number; /* first, for compare_inodes() */
        uint64_t device;
        uint64_t n_bytes;
} Inode;

uint64_t alive_memory_bytes(const Foliod *foliod)
{
        Inode *inodes = calloc(INODES_MAX, sizeof(*inodes));
        uint64_t total = 0;
        size_t n = 0;
        char path[64];
        DIR *fds;

        CHECK(inodes);
        (void)snprintf(path, sizeof(path), "/proc/%s/fd", foliod->pid_text);
        fds = opendir(path);
        CHECK(fds);
        for (struct dirent *entry; (entry = readdir(fds)) && n < INODES_MAX;) {
                struct stat file;

                /* A pipe, a socket or a log on disk is no memory of the store. */
                if (fstatat(dirfd(fds), entry->d_name, &file, 0) == 0 && S_ISREG(file.st_mode) && file.st_nlink == 0)
                        inodes[n++] = (Inode){ file.st_ino, file.st_dev, (uint64_t)file.st_blocks * 512 };
        }
        closedir(fds);
        qsort(inodes, n, sizeof(*inodes), compare_inodes);
        for (size_t i = 0; i < n; i++)
                if (i == 0 || inodes[i].number != inodes[i - 1].number || inodes[i].device != inodes[i - 1].device)
                        total += inodes[i].n_bytes;
        free(inodes);
        return total;
}

static unsigned count_file_mappings(const Foliod *foliod)
{
        char path[64], line[1024];
        unsigned n = 0;
        FILE *maps;

        (void)snprintf(path, sizeof(path), "/proc/%s/maps", foliod->pid_text);
        maps = fopen(path, "re");
        CHECK(maps);
        while (fgets(line, sizeof(line), maps))
                if (strchr(line, '/'))
                        n++;
        fclose(maps);
        return n;
}

Charges alive_charges(struct folio_client *client)
{
        struct folio_namespace entries[16] = { { .struct_bytes = sizeof(entries[0]) } };
        char after[FOLIO_NAMESPACE_BYTES_MAX + 1] = "";
        Charges sum = { 0 };
        int n;

        while ((n = folio_namespace_list(client, after, entries, 16)) > 0) {
                for (int i = 0; i < n; i++) {
                        sum.used_bytes += entries[i].used_bytes;
                        sum.n_objects += entries[i].n_objects;
                        sum.held_bytes += entries[i].held_bytes;
                        sum.n_held += entries[i].n_held;
                        sum.unsealed_bytes += entries[i].unsealed_bytes;
                        sum.n_unsealed += entries[i].n_unsealed;
                }
                memcpy(after, entries[n - 1].name, sizeof(after));
        }
        CHECK_OK(n);
        return sum;
}

/* One of each kind, put, got and deleted. */
static void use_everything(Foliod *foliod)
{
        struct folio_create_options own = { .struct_bytes = sizeof(own), .flags = FOLIO_OWN_REGION };
        struct folio_client *client = foliod_connect(foliod);
        struct folio_object *object;
        void *bytes = calloc(1, OWN_BYTES);

        assert_non_null(bytes);
        ASSERT_OK(folio_put(client, "alive small", bytes, 100, NULL));
        ASSERT_OK(folio_put(client, "alive own", bytes, OWN_BYTES, &own));
        ASSERT_OK(folio_get(client, "alive small", 0, 0, &object));
        ASSERT_OK(folio_object_release(object));
        ASSERT_OK(folio_get(client, "alive own", 0, 0, &object));
        ASSERT_OK(folio_object_release(object));
        ASSERT_OK(folio_delete(client, "alive small", 0));
        ASSERT_OK(folio_delete(client, "alive own", 0));
        free(bytes);
        folio_client_unref(client);
}

static Alive look(Foliod *foliod)
{
        return (Alive){
                .foliod = foliod,
                .pid = foliod->pid,
                .n_fds = foliod_count_fds(foliod),
                .n_mappings = count_file_mappings(foliod),
                .memory_bytes = alive_memory_bytes(foliod),
        };
}

static bool is_same(const Alive *a, const Alive *b)
{
        return a->n_fds == b->n_fds && a->n_mappings == b->n_mappings && a->memory_bytes == b->memory_bytes;
}

static void ask(Alive *alive)
{
        struct folio_client *client = foliod_connect(alive->foliod);
        Charges charges = alive_charges(client);

        alive->used_bytes = charges.used_bytes;
        alive->n_objects = charges.n_objects;
        alive->held_bytes = charges.held_bytes;
        alive->unsealed_bytes = charges.unsealed_bytes;
        folio_client_unref(client);
}

Alive alive_begin(Foliod *foliod)
{
        Alive now, before;
        unsigned n_same = 0;

        use_everything(foliod);
        before = (Alive){ .foliod = foliod };
        ask(&before);
        now = look(foliod);
        for (unsigned i = 0; n_same < STEADY_LOOKS; i++) {
                Alive last = now;

                if (i > LOOKS_MAX)
                        fail_msg("foliod never comes to rest: %u descriptors, %u mappings, %llu bytes", now.n_fds,
                                 now.n_mappings, (unsigned long long)now.memory_bytes);
                harness_pause();
                now = look(foliod);
                n_same = is_same(&now, &last) ? n_same + 1 : 0;
        }
        now.used_bytes = before.used_bytes;
        now.n_objects = before.n_objects;
        now.held_bytes = before.held_bytes;
        now.unsealed_bytes = before.unsealed_bytes;
        return now;
}

void alive_check_answers(const Alive *before)
{
        struct folio_client *client;

        assert_int_equal(before->foliod->pid, before->pid);
        assert_int_equal(kill(before->pid, 0), 0);
        client = foliod_connect(before->foliod);
        assert_true(foliod_fact(client, "memory.budget_bytes") > 0);
        folio_client_unref(client);
}

static bool is_back(const Alive *now, const Alive *before)
{
        /* The index keeps pages it has once used: 16 MiB of grace are less than any case here allocates. */
        /* Of before: a connection that had ended might not have been noticed yet, where foliod had no processor. */
        return now->n_fds <= before->n_fds && now->n_mappings <= before->n_mappings &&
               now->memory_bytes <= before->memory_bytes + (16 << 20) && now->used_bytes == before->used_bytes &&
               now->n_objects == before->n_objects && now->held_bytes == before->held_bytes &&
               now->unsealed_bytes == before->unsealed_bytes;
}

/* Where something is left, what foliod says of itself is a good beginning. */
static void show_facts(Foliod *foliod)
{
        struct folio_status facts[128] = { { .struct_bytes = sizeof(facts[0]) } };
        struct folio_client *client = foliod_connect(foliod);
        int n = folio_status_get(client, facts, 128);

        for (int i = 0; i < n && i < 128; i++)
                fprintf(stderr, "# %s %llu %s\n", facts[i].name, (unsigned long long)facts[i].value, facts[i].text);
        folio_client_unref(client);
}

void alive_check(const Alive *before)
{
        Alive now;

        alive_check_answers(before);
        for (unsigned i = 0; i < LOOKS_MAX; i++) {
                /* Each question is a connection of its own, that must be gone again before descriptors are counted. */
                now = look(before->foliod);
                if (now.n_fds <= before->n_fds || i % 256 == 255) {
                        ask(&now);
                        if (is_back(&now, before))
                                return;
                }
                harness_pause();
        }
#define DIFFERENCE(field)                                                                                              \
        fprintf(stderr, "# " #field " before %llu, after %llu\n", (unsigned long long)before->field,                   \
                (unsigned long long)now.field)
        DIFFERENCE(n_fds);
        DIFFERENCE(n_mappings);
        DIFFERENCE(memory_bytes);
        DIFFERENCE(used_bytes);
        DIFFERENCE(n_objects);
        DIFFERENCE(held_bytes);
        DIFFERENCE(unsealed_bytes);
#undef DIFFERENCE
        show_facts(before->foliod);
        fail_msg("foliod is not back at what it was");
}

bool alive_add_tmpfs(struct folio_client *client)
{
        struct folio_namespace settings = {
                .struct_bytes = sizeof(settings),
                .fields = FOLIO_NAMESPACE_FIELD_BACKING,
                .backing = FOLIO_BACKING_TMPFS,
                .name = "tmpfs",
        };
        int error = folio_namespace_add(client, &settings);

        if (error == FOLIO_E_UNSUPPORTED) {
                print_message("# no tmpfs backing here\n");
                return false;
        }
        ASSERT_OK(error);
        return true;
}

unsigned alive_scaled(unsigned n)
{
        return getenv("FOLIO_TEST_SLOW") ? (n + 9) / 10 : n;
}
