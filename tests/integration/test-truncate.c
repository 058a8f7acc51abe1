/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mutable objects change their size while others map them. Nobody is ever signalled, what grows reads as zeros, what
 * shrinks gives its memory back, and what does not change costs nothing.
 */
#include "tests/integration/alive.h"
#include "tests/integration/raw.h"
#include "tests/integration/trace.h"

#define MIB (UINT64_C(1) << 20)
#define HUGE (2 * MIB)

static const char memory_calls[] = "fallocate,ftruncate,madvise,mmap,munmap,pwrite64,write,pwritev,mremap,memfd_create";

static struct folio_create_options mutable_options(uint64_t capacity_bytes, uint32_t flags)
{
        return (struct folio_create_options){
                .struct_bytes = sizeof(struct folio_create_options),
                .flags = FOLIO_MUTABLE | flags,
                .capacity_bytes = capacity_bytes,
        };
}

static struct folio_stat stat_of(struct folio_client *client, const char *name)
{
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };

        ASSERT_OK(folio_stat(client, name, &stat));
        return stat;
}

/*
 * A09: growing promises space that is there. The capacity is reserved and charged at create, so a growth within it
 * cannot fail, and one that the store has no room for fails there and then, with nothing changed.
 */
static void test_a09_growing_promises_space(void **state)
{
        struct folio_create_options small = mutable_options(MIB, 0), large = mutable_options(60 * MIB, 0);
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_object *object, *filler = NULL;
        uint8_t *bytes = malloc(MIB), *read = malloc(MIB);
        uint64_t filler_bytes = 62 * MIB;

        (void)state;
        assert_non_null(bytes);
        assert_non_null(read);
        harness_fill(bytes, MIB, 9);
        ASSERT_OK(folio_create(client, "grown", MIB, &small, &object));
        ASSERT_OK(folio_object_write(object, 0, bytes, MIB));
        /* The store is filled to the last MiB or so. */
        while (filler_bytes && folio_create(client, "filler", filler_bytes, NULL, &filler) != 0)
                filler_bytes -= MIB;
        assert_true(filler_bytes > 32 * MIB);
        assert_int_equal(folio_truncate(client, "grown", 64 * MIB), FOLIO_E_TOO_LARGE);
        assert_int_equal(folio_object_truncate(object, MIB + 1), FOLIO_E_TOO_LARGE);
        assert_int_equal(stat_of(client, "grown").size_bytes, MIB);
        ASSERT_OK(folio_read(client, "grown", 0, read, MIB));
        assert_memory_equal(read, bytes, MIB);
        /* Down and up again in a full store: the place is still ours. */
        ASSERT_OK(folio_truncate(client, "grown", 4096));
        ASSERT_OK(folio_truncate(client, "grown", MIB));
        ASSERT_OK(folio_object_write(object, 0, bytes, MIB));
        {
                struct folio_object *no_room = NULL;
                int error = folio_create(client, "no room", 4096, &large, &no_room);

                assert_true(error == FOLIO_E_FULL);
                assert_null(no_room);
                assert_true(strpbrk(folio_strerror_full(), "0123456789") != NULL);
        }
        ASSERT_OK(folio_object_abort(filler));
        ASSERT_OK(folio_object_release(object));
        ASSERT_OK(folio_delete(client, "grown", 0));
        free(bytes);
        free(read);
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

typedef struct Model {
        struct folio_client *client;
        struct folio_client *other; /* maps before and after each change */
        struct folio_object *object;
        const char *name;
        uint8_t *bytes; /* what must be there */
        uint8_t *read;
        uint64_t size_bytes;
        uint64_t capacity_bytes;
        uint64_t seed;
        bool is_sparse; /* what is written then is counted when it is next truncated */
} Model;

static void model_compare(Model *model)
{
        struct folio_stat stat = stat_of(model->client, model->name);
        struct folio_object *mapped;

        assert_int_equal(stat.size_bytes, model->size_bytes);
        assert_int_equal(stat.capacity_bytes, model->capacity_bytes);
        assert_int_equal(folio_object_size(model->object), model->size_bytes);
        assert_true(stat.allocated_bytes <= (model->size_bytes + HUGE - 1) / HUGE * HUGE);
        assert_true(stat.huge_bytes <= stat.allocated_bytes);
        ASSERT_OK(folio_get(model->other, model->name, 0, 0, &mapped));
        assert_int_equal(folio_object_size(mapped), model->size_bytes);
        assert_memory_equal(folio_object_data(mapped), model->bytes, model->size_bytes);
        ASSERT_OK(folio_object_release(mapped));
        ASSERT_OK(folio_read(model->client, model->name, 0, model->read, model->size_bytes));
        assert_memory_equal(model->read, model->bytes, model->size_bytes);
}

/* What is there takes no more than its size, in whole folios; for what is gone nothing is kept. */
static void model_truncate(Model *model, uint64_t size_bytes)
{
        uint64_t before_bytes = model->size_bytes, allocated_bytes = stat_of(model->client, model->name).allocated_bytes;
        struct folio_object *across;
        struct folio_stat stat;
        const uint8_t *seen;

        /* Mapped before, and looked at behind it. */
        ASSERT_OK(folio_get(model->other, model->name, 0, 0, &across));
        seen = folio_object_data(across);
        assert_non_null(seen);
        assert_memory_equal(seen, model->bytes, model->size_bytes);
        ASSERT_OK(folio_truncate(model->client, model->name, size_bytes));
        if (size_bytes > model->size_bytes)
                memset(model->bytes + model->size_bytes, 0, size_bytes - model->size_bytes);
        model->size_bytes = size_bytes;
        assert_int_equal(folio_object_size(across), size_bytes);
        assert_memory_equal(seen, model->bytes, size_bytes);
        ASSERT_OK(folio_object_release(across));
        stat = stat_of(model->client, model->name);
        assert_true(stat.allocated_bytes <= (size_bytes + HUGE - 1) / HUGE * HUGE);
        if (size_bytes < before_bytes && !model->is_sparse)
                assert_true(stat.allocated_bytes <= allocated_bytes);
        model_compare(model);
}

static void model_fill(Model *model)
{
        harness_fill(model->bytes, model->size_bytes, ++model->seed);
        ASSERT_OK(folio_object_write(model->object, 0, model->bytes, model->size_bytes));
        model_compare(model);
}

static void follow_model(Foliod *foliod, const char *name, uint64_t n, uint32_t flags)
{
        struct folio_create_options options = mutable_options(n + 5, flags);
        Model model = {
                .client = foliod_connect(foliod),
                .other = foliod_connect(foliod),
                .name = name,
                .bytes = calloc(1, n + 8),
                .read = calloc(1, n + 8),
                .size_bytes = n,
                .capacity_bytes = n + 5,
                .seed = n,
                .is_sparse = flags & FOLIO_SPARSE,
        };
        uint64_t full_bytes;

        assert_non_null(model.bytes);
        assert_non_null(model.read);
        ASSERT_OK(folio_create(model.client, name, n, &options, &model.object));
        model_compare(&model);
        model_fill(&model);
        full_bytes = stat_of(model.client, name).allocated_bytes;
        if (!model.is_sparse)
                assert_true(full_bytes >= n);
        model_truncate(&model, n - 1);
        model_truncate(&model, n);
        model_fill(&model);
        model_truncate(&model, n / 2);
        if (n >= 2 * HUGE && !model.is_sparse)
                assert_true(stat_of(model.client, name).allocated_bytes < full_bytes);
        model_truncate(&model, n);
        model_fill(&model);
        model_truncate(&model, 0);
        assert_int_equal(stat_of(model.client, name).allocated_bytes, 0);
        model_truncate(&model, n);
        model_truncate(&model, n + 5);
        model_fill(&model);
        model_truncate(&model, n);
        ASSERT_OK(folio_object_release(model.object));
        ASSERT_OK(folio_delete(model.client, name, 0));
        free(model.bytes);
        free(model.read);
        folio_client_unref(model.other);
        folio_client_unref(model.client);
}

/* B06: sizes around a page and a huge page, truncated inside and outside of them, against a model in plain memory. */
static void test_b06_sizes_next_to_huge(void **state)
{
        static const uint64_t sizes[] = { 1, 4095, 4096, 4097, HUGE - 1, HUGE, HUGE + 1, 5 * MIB };
        struct folio_namespace settings = {
                .struct_bytes = sizeof(settings),
                .fields = FOLIO_NAMESPACE_FIELD_BACKING,
                .backing = FOLIO_BACKING_TMPFS,
                .name = "tmpfs",
        };
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        int error;

        (void)state;
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                follow_model(foliod, "model", sizes[i], 0);
                follow_model(foliod, "sparse", sizes[i], FOLIO_SPARSE);
        }
        alive_charges(client);
        error = folio_namespace_add(client, &settings);
        if (error == 0) {
                for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
                        follow_model(foliod, "tmpfs:model", sizes[i], 0);
                ASSERT_OK(folio_namespace_remove(client, "tmpfs"));
        } else {
                assert_int_equal(error, FOLIO_E_UNSUPPORTED);
                print_message("# no tmpfs backing here\n");
        }
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

static void touch_for_ever(Child *child)
{
        struct folio_client *client = child_connect(child);
        bool is_writer = *(bool *)child->userdata;
        struct folio_object *object;
        volatile uint8_t *data;
        void *writable;
        uint64_t sum = 0;

        CHECK_OK(folio_get(client, "touched", is_writer ? FOLIO_GET_WRITABLE : 0, 0, &object));
        if (is_writer) {
                CHECK_OK(folio_object_map_write(object, &writable));
                data = writable;
        } else {
                data = (volatile uint8_t *)(uintptr_t)folio_object_data(object);
        }
        CHECK(data);
        child_say(child, 1);
        for (;;) {
                struct pollfd told = { .fd = child->socket, .events = POLLIN };

                /* All of the capacity, whatever the size is. */
                for (size_t i = 0; i < 8 * MIB; i += 4096) {
                        if (is_writer)
                                data[i] = 0xaa;
                        else
                                sum += data[i];
                }
                if (poll(&told, 1, 0) == 1)
                        break;
        }
        CHECK(sum < UINT64_MAX);
        CHECK_OK(folio_object_release(object));
        folio_client_unref(client);
}

/* Truncating what others map and touch never signals them. */
static void test_truncate_never_signals(void **state)
{
        struct folio_create_options options = mutable_options(8 * MIB, 0);
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_object *object;
        bool is_writer[2] = { false, true };
        Child *children[2];
        uint32_t random = 1;

        (void)state;
        ASSERT_OK(folio_create(client, "touched", 8 * MIB, &options, &object));
        for (unsigned i = 0; i < 2; i++) {
                children[i] = child_start(foliod, touch_for_ever, &is_writer[i]);
                assert_int_equal(child_hear(children[i]), 1);
        }
        for (unsigned i = 0; i < alive_scaled(400); i++) {
                uint64_t size_bytes;

                random = random * 1664525 + 1013904223;
                size_bytes = i % 5 == 0 ? 0 : i % 5 == 1 ? 8 * MIB : random % (8 * MIB + 1);
                ASSERT_OK(folio_truncate(client, "touched", size_bytes));
                assert_int_equal(folio_object_size(object), size_bytes);
        }
        for (unsigned i = 0; i < 2; i++) {
                child_say(children[i], 1);
                child_finish(children[i]);
        }
        ASSERT_OK(folio_object_release(object));
        ASSERT_OK(folio_delete(client, "touched", 0));
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

/* Bytes stored beyond the end through a mapping do not come up when the object grows over them. */
static void test_stale_tail_is_zero(void **state)
{
        static const uint64_t ends[] = { 0, 1, 100, 4095, 4096, 4097, 65536, HUGE - 1, HUGE, HUGE + 4097 };
        struct folio_create_options options = mutable_options(6 * MIB, 0);
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        uint8_t *read = malloc(6 * MIB), *zeros = calloc(1, 6 * MIB);
        struct folio_object *object;
        void *data;

        (void)state;
        assert_non_null(read);
        assert_non_null(zeros);
        ASSERT_OK(folio_create(client, "tail", 6 * MIB, &options, &object));
        ASSERT_OK(folio_object_map_write(object, &data));
        for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
                memset(data, 0xab, 6 * MIB);
                ASSERT_OK(folio_truncate(client, "tail", ends[i]));
                /* Again after the shrink, which has zeroed or punched it. */
                memset((uint8_t *)data + ends[i], 0xcd, 6 * MIB - ends[i]);
                ASSERT_OK(folio_truncate(client, "tail", ends[i] + 3));
                ASSERT_OK(folio_truncate(client, "tail", 6 * MIB));
                ASSERT_OK(folio_read(client, "tail", 0, read, 6 * MIB));
                for (size_t j = 0; j < ends[i]; j += 511)
                        assert_int_equal(read[j], 0xab);
                assert_memory_equal(read + ends[i], zeros, 6 * MIB - ends[i]);
                assert_memory_equal((uint8_t *)data + ends[i], zeros, 6 * MIB - ends[i]);
        }
        ASSERT_OK(folio_object_release(object));
        ASSERT_OK(folio_delete(client, "tail", 0));
        free(read);
        free(zeros);
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

static void truncate_to_the_same(Child *child)
{
        struct folio_client *client = child_connect(child);
        struct folio_object *object;

        CHECK_OK(folio_get(client, "same", 0, 0, &object));
        CHECK_OK(folio_truncate(client, "same", 3 * MIB));
        child_say(child, 1);
        CHECK(child_hear(child) == 1);
        (void)!write(-1, "begin", 5);
        for (unsigned i = 0; i < 100; i++)
                CHECK_OK(folio_truncate(client, "same", 3 * MIB));
        (void)!write(-1, "end", 3);
        CHECK_OK(folio_object_release(object));
        child_say(child, 1);
        CHECK(child_hear(child) == 1);
        folio_client_unref(client);
}

/* The same size is no work for anybody: not for the client, and, asked by hand, no memory work for the daemon. */
static void test_same_size_is_no_work(void **state)
{
        struct folio_create_options options = mutable_options(8 * MIB, 0),
                                    sparse = mutable_options(8 * MIB, FOLIO_SPARSE);
        ProtoItem same = { .key = raw_key("same"), .size_bytes = 3 * MIB }, empty = { .key = raw_key("empty") };
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client = foliod_connect(foliod);
        Raw *raw = raw_open(foliod);
        uint32_t id = raw_namespace(raw, "default");
        struct folio_object *object;
        Child *child;
        bool is_traced;
        Trace trace;

        (void)state;
        ASSERT_OK(folio_create(client, "same", 3 * MIB, &options, &object));
        ASSERT_OK(folio_object_release(object));
        ASSERT_OK(folio_create(client, "empty", 5 * MIB, &sparse, &object));
        ASSERT_OK(folio_object_release(object));
        child = child_start(foliod, truncate_to_the_same, NULL);
        assert_int_equal(child_hear(child), 1);
        is_traced = trace_begin(&trace, foliod, child->pid, NULL);
        child_say(child, 1);
        assert_int_equal(child_hear(child), 1);
        if (is_traced) {
                trace_end(&trace);
                assert_int_equal(trace_count_between(&trace, "write(-1, \"begin\"", "write(-1, \"end\""), 0);
                is_traced = trace_begin(&trace, foliod, foliod->pid, memory_calls);
        }
        child_say(child, 1);
        child_finish(child);
        if (is_traced) {
                /* The end of the child is work; it must be over before we look. */
                trace_end(&trace);
                AWAIT(foliod_fact(client, "sessions.count") == 2);
                is_traced = trace_begin(&trace, foliod, foliod->pid, memory_calls);
        }
        for (unsigned i = 0; i < 50; i++) {
                static const uint64_t sizes[] = { 4 * MIB, 0, 8 * MIB, 100, 5 * MIB };

                assert_int_equal(raw_item(raw, VERB_TRUNCATE, id, same), STATUS_OK);
                empty.size_bytes = sizes[i % 5];
                assert_int_equal(raw_item(raw, VERB_TRUNCATE, id, empty), STATUS_OK);
        }
        if (is_traced) {
                trace_end(&trace);
                /* An eventfd or a wake-up of a worker is no memory. */
                assert_int_equal(trace_count(&trace, "fallocate(", true), 0);
                assert_int_equal(trace_count(&trace, "ftruncate(", true), 0);
                assert_int_equal(trace_count(&trace, "madvise(", true), 0);
                assert_int_equal(trace_count(&trace, "mmap(", true), 0);
                assert_int_equal(trace_count(&trace, "munmap(", true), 0);
                assert_int_equal(trace_count(&trace, "pwrite64(", true), 0);
        }
        assert_int_equal(stat_of(client, "empty").size_bytes, 5 * MIB);
        assert_true(stat_of(client, "empty").allocated_bytes == 0);
        ASSERT_OK(folio_delete(client, "same", 0));
        ASSERT_OK(folio_delete(client, "empty", 0));
        raw_close(raw);
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
        if (!is_traced) {
                print_message("# strace cannot attach here: the calls were not looked at\n");
                skip();
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_a09_growing_promises_space), INTEGRATION_TEST(test_b06_sizes_next_to_huge),
                INTEGRATION_TEST(test_truncate_never_signals),     INTEGRATION_TEST(test_stale_tail_is_zero),
                INTEGRATION_TEST(test_same_size_is_no_work),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
