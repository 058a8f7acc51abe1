/* SPDX-License-Identifier: Apache-2.0 */
/* The cache of mappings: shared, counted, forgotten in order, bounded, and gone at the end. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/macro.h"
#include "client/lib/maps.h"
#include "tests/unit/harness.h"

static int new_fd(uint64_t n_bytes)
{
        int fd = memfd_create("region", MFD_CLOEXEC);

        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, (off_t)n_bytes), 0);
        return fd;
}

static Mapping *add(Maps *maps, uint64_t region_id, uint64_t n_bytes)
{
        Mapping *mapping = NULL;

        assert_int_equal(maps_add(maps, region_id, new_fd(n_bytes), n_bytes, false, false, &mapping), 0);
        assert_int_equal(mapping->region_id, region_id);
        assert_int_equal(mapping->n_bytes, n_bytes);
        return mapping;
}

/* The flags of the mapping at @data, as the kernel lists them: " rd wr sh ... ". */
static void read_flags(const void *data, char ret[256])
{
        FILE *smaps = fopen("/proc/self/smaps", "re");
        char line[512];
        unsigned long begin, end;
        bool is_it = false;

        ret[0] = '\0';
        assert_non_null(smaps);
        while (fgets(line, sizeof(line), smaps)) {
                if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
                        is_it = begin == (unsigned long)data;
                if (is_it && strncmp(line, "VmFlags:", 8) == 0)
                        snprintf(ret, 256, "%.200s", line + 8);
        }
        fclose(smaps);
}

static void test_map(void **state)
{
        static const uint64_t sizes[] = { 1, 4095, 4096, 4097, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 7056012 };
        char flags[256];

        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                int fd = new_fd(sizes[i]);
                void *data = NULL;

                assert_int_equal(pwrite(fd, "x", 1, (off_t)sizes[i] - 1), 1);
                assert_int_equal(maps_map(fd, sizes[i], PROT_READ, &data), 0);
                assert_int_equal(maps_count(), 1);
                assert_int_equal(((uint8_t *)data)[sizes[i] - 1], 'x');
                if (sizes[i] >= 2 * MIB)
                        assert_int_equal((uintptr_t)data % (2 * MIB), 0);
                read_flags(data, flags);
                assert_non_null(strstr(flags, " dd"));
                assert_non_null(strstr(flags, " sh"));
                assert_null(strstr(flags, " wr"));
                maps_unmap(data, sizes[i]);
                close(fd);
        }
        assert_int_equal(maps_count(), 0);
}

/* What is mapped through the cache is in dumps only where that was asked for; what is mapped without it never. */
static void test_dumps_are_allowed(void **state)
{
        char flags[256];

        for (unsigned is_wanted = 0; is_wanted < 2; is_wanted++) {
                void *copied = NULL, *view = NULL, *plain = NULL;
                int fd = new_fd(3 * MIB);
                Mapping *mapping = NULL;
                Maps *maps;

                assert_int_equal(maps_new(0, 0, &maps), 0);
                if (is_wanted)
                        maps_allow_dumps(maps);
                assert_int_equal(maps_open(maps, 1, fd, 3 * MIB, false, false, &mapping), 0);
                read_flags(mapping->data, flags);
                assert_int_equal(strstr(flags, " dd") == NULL, is_wanted);
                assert_int_equal(maps_map_private(maps, fd, 3 * MIB, &view), 0);
                read_flags(view, flags);
                assert_int_equal(strstr(flags, " dd") == NULL, is_wanted);
                assert_int_equal(maps_map_private(maps, -1, 8192, &copied), 0);
                assert_int_equal(maps_map(fd, 3 * MIB, PROT_READ, &plain), 0);
                read_flags(plain, flags);
                assert_non_null(strstr(flags, " dd"));
                maps_unmap(plain, 3 * MIB);
                maps_unmap(copied, 8192);
                maps_unmap(view, 3 * MIB);
                maps_unref(maps, mapping, false);
                maps_free(maps);
                close(fd);
        }
        assert_int_equal(maps_count(), 0);
}

static void test_map_what_is_not_there(void **state)
{
        static const struct {
                uint64_t file_bytes;
                uint64_t n_bytes;
                int error;
        } rows[] = {
                { 4096, 0, -EINVAL },        { 4096, 4097, -EPROTO },        { 0, 1, -EPROTO },
                { 2 * MIB - 1, 2 * MIB, -EPROTO }, { 4096, UINT64_C(1) << 62, -EPROTO }, { 4096, UINT64_MAX, -EPROTO },
        };
        void *data = NULL;
        Mapping *mapping = NULL;
        Maps *maps;
        int fd;

        assert_int_equal(maps_new(0, UINT_MAX, &maps), 0);
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                fd = new_fd(rows[i].file_bytes);
                assert_int_equal(maps_map(fd, rows[i].n_bytes, PROT_READ, &data), rows[i].error);
                /* Which takes the descriptor all the same. */
                assert_int_equal(maps_add(maps, 1, fd, rows[i].n_bytes, false, true, &mapping), rows[i].error);
                assert_int_equal(fcntl(fd, F_GETFD), -1);
        }
        assert_int_equal(maps_map(-1, 4096, PROT_READ, &data), -EBADF);
        assert_int_equal(maps_add(maps, 1, -1, 4096, false, false, &mapping), -EBADF);
        /* Larger than what can be mapped, in a file that is really so long (and empty). */
        fd = new_fd(UINT64_C(1) << 50);
        assert_int_equal(maps_map(fd, UINT64_C(1) << 50, PROT_READ, &data), -ENOMEM);
        close(fd);
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        assert_int_equal(maps_map(fd, 4096, PROT_READ, &data), -EPROTO);
        close(fd);
        assert_null(data);
        assert_null(mapping);
        assert_int_equal(maps_count(), 0);
        maps_free(maps);
        maps_free(NULL);
}

static void test_read_only_is_refused_writing(void **state)
{
        char path[64];
        Mapping *mapping = NULL;
        Maps *maps;
        int fd = new_fd(4096), read_only;

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        read_only = open(path, O_RDONLY | O_CLOEXEC);
        assert_int_equal(maps_new(0, UINT_MAX, &maps), 0);
        assert_int_equal(maps_add(maps, 1, dup(read_only), 4096, true, false, &mapping), -EACCES);
        assert_int_equal(maps_add(maps, 1, read_only, 4096, false, false, &mapping), 0);
        assert_int_equal(mprotect(mapping->data, 4096, PROT_READ | PROT_WRITE), -1);
        maps_unref(maps, mapping, false);
        maps_free(maps);
        close(fd);
}

static void test_one_mapping_for_each_kind(void **state)
{
        Mapping *a, *b, *c, *w;
        Maps *maps;
        int fd = new_fd(4096);

        assert_int_equal(maps_new(MIB, UINT_MAX, &maps), 0);
        assert_null(maps_find(maps, 1, false));
        assert_int_equal(maps_add(maps, 1, dup(fd), 4096, false, false, &a), 0);
        assert_int_equal(maps_add(maps, 1, dup(fd), 4096, false, false, &b), 0);
        assert_int_equal(maps_add(maps, 1, dup(fd), 4096, true, false, &w), 0);
        assert_ptr_equal(a, b);
        assert_ptr_not_equal(a, w);
        assert_false(a->is_writable);
        assert_true(w->is_writable);
        w->data[5] = 42;
        assert_int_equal(a->data[5], 42);
        c = maps_find(maps, 1, false);
        assert_ptr_equal(c, a);
        assert_ptr_equal(maps_find(maps, 1, true), w);
        maps_ref(maps, w);
        assert_int_equal(maps_count(), 2);
        for (unsigned i = 0; i < 3; i++) {
                maps_unref(maps, a, false);
                maps_unref(maps, w, false);
        }
        /* Idle, and still there. */
        assert_int_equal(maps_count(), 2);
        assert_ptr_equal(maps_find(maps, 1, false), a);
        maps_unref(maps, a, false);
        maps_free(maps);
        assert_int_equal(maps_count(), 0);
        close(fd);
}

static bool is_kept(Maps *maps, uint64_t region_id)
{
        Mapping *mapping = maps_find(maps, region_id, false);

        if (mapping)
                maps_unref(maps, mapping, false);
        return mapping;
}

static void test_longest_idle_goes_first(void **state)
{
        Maps *maps;

        assert_int_equal(maps_new(4 * 4096, UINT_MAX, &maps), 0);
        for (uint64_t id = 1; id <= 4; id++)
                maps_unref(maps, add(maps, id, 4096), false);
        assert_int_equal(maps_count(), 4);
        assert_true(is_kept(maps, 1)); /* which makes it the youngest */
        maps_unref(maps, add(maps, 5, 4096), false);
        assert_int_equal(maps_count(), 4);
        assert_false(is_kept(maps, 2));
        assert_true(is_kept(maps, 1));
        /* What is larger than the bound is not worth the others, but takes them with it. */
        maps_unref(maps, add(maps, 6, 5 * 4096), false);
        assert_int_equal(maps_count(), 0);
        /* In use does not count. */
        for (uint64_t id = 10; id < 20; id++)
                (void)add(maps, id, 4096);
        assert_int_equal(maps_count(), 10);
        for (uint64_t id = 10; id < 20; id++)
                maps_unref(maps, maps_find(maps, id, false), false);
        assert_int_equal(maps_count(), 10);
        for (uint64_t id = 10; id < 20; id++) {
                Mapping *mapping = maps_find(maps, id, false);

                maps_unref(maps, mapping, false);
                maps_unref(maps, mapping, false);
        }
        assert_int_equal(maps_count(), 4);
        assert_true(is_kept(maps, 16) && is_kept(maps, 19));
        assert_false(is_kept(maps, 15));
        maps_free(maps);
}

/* As many as may be, and no more, whatever room in bytes there is. */
static void test_bound_by_number(void **state)
{
        static const unsigned bounds[] = { 0, 1, 3 };

        for (size_t i = 0; i < ARRAY_SIZE(bounds); i++) {
                Maps *maps;

                assert_int_equal(maps_new(UINT64_MAX, bounds[i], &maps), 0);
                for (uint64_t id = 1; id <= 5; id++) {
                        maps_unref(maps, add(maps, id, 4096), false);
                        assert_int_equal(maps_count(), MIN(id, (uint64_t)bounds[i]));
                }
                for (uint64_t id = 1; id <= 5; id++)
                        assert_int_equal(is_kept(maps, id), id > 5 - bounds[i]);
                maps_free(maps);
                assert_int_equal(maps_count(), 0);
        }
}

static unsigned n_looks;

static bool is_odd(MapsOwner *owner)
{
        n_looks++;
        owner->event++;
        return owner->slot % 2;
}

static bool is_never(MapsOwner *owner)
{
        n_looks++;
        return false;
}

static void test_sweep(void **state)
{
        MapsOwner owner = { .space = &n_looks };
        Mapping *used;
        Maps *maps;

        assert_int_equal(maps_new(UINT64_MAX, UINT_MAX, &maps), 0);
        maps_sweep(maps, is_never);
        assert_int_equal(n_looks, 0);
        for (uint64_t id = 0; id < 100; id++) {
                owner.slot = (uint32_t)id;
                maps_unref_owned(maps, add(maps, id, 4096), &owner);
        }
        for (uint64_t id = 100; id < 110; id++)
                maps_unref(maps, add(maps, id, 4096), false);
        /* Some at a time, each in its turn; those that are of nothing never. */
        maps_sweep(maps, is_odd);
        assert_int_equal(n_looks, 64);
        assert_int_equal(maps_count(), 110 - 32);
        assert_true(!is_kept(maps, 0) && !is_kept(maps, 62));
        maps_sweep(maps, is_odd);
        assert_int_equal(n_looks, 128);
        assert_int_equal(maps_count(), 60);
        /* In use it is not looked at; let go of by somebody who does not know whose it is, it is again. */
        used = maps_find(maps, 1, false);
        maps_sweep(maps, is_never);
        assert_int_equal(maps_count(), 11);
        maps_unref(maps, used, false);
        assert_int_equal(maps_count(), 11);
        maps_sweep(maps, is_never);
        assert_int_equal(maps_count(), 10);
        maps_free(maps);
        assert_int_equal(maps_count(), 0);
}

static void test_private(void **state)
{
        static const uint64_t sizes[] = { 1, 4096, 2 * MIB - 1, 2 * MIB, 5 * MIB + 1 };
        char path[64], flags[256];
        Maps *maps;

        assert_int_equal(maps_new(0, 0, &maps), 0);
        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                int fd = new_fd(sizes[i]), read_only;
                void *one = NULL, *other = NULL, *none = NULL;
                char byte = 0;

                assert_int_equal(pwrite(fd, "x", 1, (off_t)sizes[i] - 1), 1);
                snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
                read_only = open(path, O_RDONLY | O_CLOEXEC);
                assert_int_equal(maps_map_private(maps, read_only, sizes[i], &one), 0);
                assert_int_equal(maps_map_private(maps, read_only, sizes[i], &other), 0);
                assert_int_equal(maps_map_private(maps, -1, sizes[i], &none), 0);
                assert_int_equal(maps_count(), 3);
                if (sizes[i] >= 2 * MIB)
                        assert_int_equal(((uintptr_t)one | (uintptr_t)none) % (2 * MIB), 0);
                read_flags(one, flags);
                assert_non_null(strstr(flags, " dd"));
                assert_null(strstr(flags, " sh"));
                assert_int_equal(((char *)one)[sizes[i] - 1], 'x');
                assert_int_equal(((char *)none)[sizes[i] - 1], 0);
                ((char *)one)[sizes[i] - 1] = 'y';
                ((char *)none)[0] = 'z';
                assert_int_equal(((char *)other)[sizes[i] - 1], 'x');
                assert_int_equal(pread(fd, &byte, 1, (off_t)sizes[i] - 1), 1);
                assert_int_equal(byte, 'x');
                maps_unmap(one, sizes[i]);
                maps_unmap(other, sizes[i]);
                maps_unmap(none, sizes[i]);
                assert_int_equal(maps_map_private(maps, fd, sizes[i] + 1, &one), -EPROTO);
                assert_int_equal(maps_map_private(maps, fd, 0, &one), -EINVAL);
                close(fd);
                close(read_only);
        }
        assert_int_equal(maps_count(), 0);
        maps_free(maps);
}

static void test_notes(void **state)
{
        unsigned n_known = 0;
        Maps *maps;

        assert_int_equal(maps_new(0, 0, &maps), 0);
        assert_false(maps_note_read(maps, 1));
        assert_true(maps_note_read(maps, 1));
        assert_true(maps_note_read(maps, 1));
        for (uint64_t id = 2; id < 100; id++)
                assert_false(maps_note_read(maps, id));
        for (uint64_t id = 2; id < 100; id++)
                n_known += maps_note_read(maps, id);
        assert_true(n_known > 60);
        maps_free(maps);
}

static void test_dropped_is_not_kept(void **state)
{
        Mapping *mapping;
        Maps *maps;

        assert_int_equal(maps_new(MIB, UINT_MAX, &maps), 0);
        mapping = add(maps, 1, 4096);
        maps_ref(maps, mapping);
        maps_unref(maps, mapping, true);
        assert_int_equal(maps_count(), 1);
        maps_unref(maps, mapping, false);
        assert_int_equal(maps_count(), 0);
        maps_free(maps);
}

static void test_in_use_outlives_the_cache(void **state)
{
        Mapping *mapping, *other;
        Maps *maps;

        assert_int_equal(maps_new(MIB, UINT_MAX, &maps), 0);
        mapping = add(maps, 1, 4096);
        other = add(maps, 2, 4096);
        maps_unref(maps, add(maps, 3, 4096), false);
        maps_free(maps);
        assert_int_equal(maps_count(), 2);
        assert_int_equal(mapping->data[4095], 0);
        maps_ref(maps, mapping);
        maps_unref(maps, mapping, false);
        maps_unref(maps, mapping, false);
        assert_int_equal(maps_count(), 1);
        maps_unref(maps, other, false);
        assert_int_equal(maps_count(), 0);
}

static void test_populate(void **state)
{
        enum { N_PAGES = 600 };
        static unsigned char there[N_PAGES];
        Maps *maps;

        assert_int_equal(maps_new(0, UINT_MAX, &maps), 0);
        for (unsigned writable = 0; writable < 2; writable++) {
                Mapping *mapping;

                assert_int_equal(maps_add(maps, 1, new_fd(N_PAGES * 4096), N_PAGES * 4096, writable, true, &mapping),
                                 0);
                assert_int_equal(mincore(mapping->data, mapping->n_bytes, there), 0);
                for (unsigned i = 0; i < N_PAGES; i++)
                        assert_int_equal(there[i] & 1, 1);
                maps_unref(maps, mapping, true);
        }
        maps_free(maps);
}

/* Case D25: an address space that grows with every session. */
static void test_d25_sessions_leave_nothing(void **state)
{
        int n_before = harness_count_shared_mappings();

        for (unsigned session = 0; session < 1000; session++) {
                Maps *maps;

                assert_int_equal(maps_new(UINT64_MAX, UINT_MAX, &maps), 0);
                for (uint64_t id = 0; id < 16; id++)
                        maps_unref(maps, add(maps, id, 7056012), false);
                if (session == 0)
                        assert_int_equal(harness_count_shared_mappings(), n_before + 16);
                maps_free(maps);
        }
        assert_int_equal(harness_count_shared_mappings(), n_before);
}

static unsigned read_max_map_count(void)
{
        FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
        unsigned n = 0;

        assert_non_null(file);
        assert_int_equal(fscanf(file, "%u", &n), 1);
        fclose(file);
        return n;
}

/*
 * Case E18: the library stops in time, and the program goes on. Skipped where the sysctl is so large that the test
 * would be.
 */
static void test_e18_stops_before_the_kernel_does(void **state)
{
        unsigned n_max = read_max_map_count(), n = 0;
        Mapping **mappings, *one;
        void *block;
        Maps *maps;
        int fd, r = 0;

        if (n_max > 100000)
                skip();
        assert_int_equal(maps_new(UINT64_MAX, UINT_MAX, &maps), 0);
        mappings = test_calloc(n_max, sizeof(*mappings));
        fd = new_fd(4096);
        /* Idle ones first, which do not stand in the way. */
        for (uint64_t id = 0; id < 1000; id++)
                maps_unref(maps, add(maps, id, 4096), false);
        while (n < n_max) {
                r = maps_add(maps, 1000 + n, dup(fd), 4096, false, false, &mappings[n]);
                if (r != 0)
                        break;
                n++;
        }
        assert_int_equal(r, MAPS_E_TOO_MANY);
        assert_true(n <= n_max / 10 * 9 && n > n_max / 10 * 8);
        assert_int_equal(maps_count(), n);
        /* malloc() by mmap() works. */
        for (unsigned i = 0; i < 100; i++) {
                block = malloc(MIB);
                assert_non_null(block);
                free(block);
        }
        /* What is given back makes room again. */
        maps_unref(maps, mappings[0], false);
        assert_int_equal(maps_add(maps, UINT64_MAX, dup(fd), 4096, false, false, &one), 0);
        maps_unref(maps, one, true);
        for (unsigned i = 1; i < n; i++)
                maps_unref(maps, mappings[i], i % 2);
        maps_free(maps);
        assert_int_equal(maps_count(), 0);
        close(fd);
        test_free(mappings);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                UNIT_TEST(test_map),
                UNIT_TEST(test_dumps_are_allowed),
                UNIT_TEST(test_map_what_is_not_there),
                UNIT_TEST(test_read_only_is_refused_writing),
                UNIT_TEST(test_one_mapping_for_each_kind),
                UNIT_TEST(test_longest_idle_goes_first),
                UNIT_TEST(test_bound_by_number),
                UNIT_TEST(test_sweep),
                UNIT_TEST(test_private),
                UNIT_TEST(test_notes),
                UNIT_TEST(test_dropped_is_not_kept),
                UNIT_TEST(test_in_use_outlives_the_cache),
                UNIT_TEST(test_populate),
                UNIT_TEST(test_d25_sessions_leave_nothing),
                UNIT_TEST(test_e18_stops_before_the_kernel_does),
        };

        return cmocka_run_group_tests_name("maps", tests, NULL, NULL);
}
