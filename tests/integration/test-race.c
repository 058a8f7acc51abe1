/* SPDX-License-Identifier: Apache-2.0 */
/* Two things at once: what one thread of a client sees while another is in the middle of it, and an end in the middle. */
#include "tests/integration/harness.h"

#include <pthread.h>
#include <stdatomic.h>

#define MIB (1024u * 1024u)

static const struct folio_create_options replace = { .struct_bytes = sizeof(replace), .flags = FOLIO_REPLACE };

/* --- a replacement that is being sealed ------------------------------------------------------------------------------------ */

enum { N_SEALS = 400 };

typedef struct Looker {
        struct folio_object *_Atomic object;
        atomic_bool is_over;
        atomic_uint n_looks;         /* at the object that is there now */
        int error;                   /* the first one */
} Looker;

static void *look(void *userdata)
{
        Looker *looker = userdata;

        while (!atomic_load(&looker->is_over)) {
                struct folio_stat stat = { .struct_bytes = sizeof(stat) };
                struct folio_object *object = atomic_load(&looker->object);
                int r = object ? folio_object_stat(object, &stat) : 0;

                if (r < 0 && looker->error == 0)
                        looker->error = r;
                if (object)
                        atomic_fetch_add(&looker->n_looks, 1);
        }
        return NULL;
}

static void test_stat_while_a_replacement_is_sealed(void **state)
{
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod);
        struct folio_object *objects[N_SEALS];
        Looker looker = { .object = NULL };
        pthread_t thread;

        assert_int_equal(pthread_create(&thread, NULL, look, &looker), 0);
        ASSERT_OK(folio_put(client, "name", "old", 3, NULL));
        for (size_t i = 0; i < N_SEALS; i++) {
                ASSERT_OK(folio_create(client, "name", 3, &replace, &objects[i]));
                ASSERT_OK(folio_object_write(objects[i], 0, "new", 3));
                atomic_store(&looker.n_looks, 0);
                atomic_store(&looker.object, objects[i]);
                AWAIT(atomic_load(&looker.n_looks) > 0);
                ASSERT_OK(folio_object_seal(objects[i]));
        }
        atomic_store(&looker.is_over, true);
        pthread_join(thread, NULL);
        assert_int_equal(looker.error, 0);
        for (size_t i = 0; i < N_SEALS; i++)
                ASSERT_OK(folio_object_release(objects[i]));
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* --- mapped for writing while it is being sealed --------------------------------------------------------------------- */

static void *map_until_sealed(void *userdata)
{
        Looker *looker = userdata;
        int r;

        do {
                void *data;

                r = folio_object_map_write(atomic_load(&looker->object), &data);
                atomic_fetch_add(&looker->n_looks, 1);
        } while (r == 0);
        looker->error = r;
        return NULL;
}

static void test_map_while_it_is_sealed(void **state)
{
        static const uint64_t sizes[] = { 100, 4 * MIB };
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod);

        for (size_t i = 0; i < 400; i++) {
                Looker looker = { .object = NULL };
                struct folio_object *object;
                pthread_t thread;

                ASSERT_OK(folio_create(client, "name", sizes[i % 2], &replace, &object));
                atomic_store(&looker.object, object);
                assert_int_equal(pthread_create(&thread, NULL, map_until_sealed, &looker), 0);
                while (atomic_load(&looker.n_looks) == 0)
                        ;
                ASSERT_OK(folio_object_seal(object));
                pthread_join(thread, NULL);
                assert_int_equal(looker.error, FOLIO_E_STATE);
                ASSERT_OK(folio_object_release(object));
        }
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* --- one writer of a stream -------------------------------------------------------------------------------------------------- */

typedef struct Writer {
        struct folio_object *object;
        int fd;
        uint64_t n_bytes;
        int error;
} Writer;

static void *write_from_pipe(void *userdata)
{
        Writer *writer = userdata;

        writer->error = folio_object_write_file(writer->object, 0, writer->fd, UINT64_MAX, &writer->n_bytes);
        return NULL;
}

/* While it waits for its source, others are told so at once, and have all of the staging memory. */
static void test_a_stream_has_one_writer(void **state)
{
        const struct folio_create_options options = { .struct_bytes = sizeof(options), .flags = FOLIO_STREAM };
        Foliod *foliod = foliod_start(NULL);
        struct folio_client *client = foliod_connect(foliod);
        char *large = malloc(3 * MIB);
        struct folio_object *object, *seen;
        Writer writer = { .error = 1 };
        pthread_t thread;
        int ends[2];

        assert_non_null(large);
        harness_fill(large, 3 * MIB, 1);
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        ASSERT_OK(folio_create(client, "stream", 0, &options, &object));
        writer.object = object;
        writer.fd = ends[0];
        assert_int_equal(pthread_create(&thread, NULL, write_from_pipe, &writer), 0);
        assert_int_equal(write(ends[1], "begin", 5), 5);
        /* It has taken them when the pipe is empty; it waits for more then, for as long as we like. */
        AWAIT(folio_object_write(object, UINT64_MAX, "x", 1) == FOLIO_E_STATE ||
              folio_object_write(object, 5, "x", 1) == FOLIO_E_STATE);
        assert_int_equal(folio_object_seal(object), FOLIO_E_STATE);
        ASSERT_OK(folio_put(client, "other", large, 3 * MIB, NULL));
        for (size_t at = 0; at < 3 * MIB; at += 4096)
                assert_int_equal(write(ends[1], large + at, 4096), 4096);
        close(ends[1]);
        pthread_join(thread, NULL);
        close(ends[0]);
        ASSERT_OK(writer.error);
        assert_int_equal(writer.n_bytes, 5 + 3 * MIB);
        ASSERT_OK(folio_object_write(object, writer.n_bytes, "end", 3));
        ASSERT_OK(folio_object_seal(object));
        ASSERT_OK(folio_object_release(object));
        ASSERT_OK(folio_get(client, "stream", 0, 0, &seen));
        assert_int_equal(folio_object_size(seen), 8 + 3 * MIB);
        assert_memory_equal(folio_object_data(seen), "begin", 5);
        assert_memory_equal((const char *)folio_object_data(seen) + 5, large, 3 * MIB);
        assert_memory_equal((const char *)folio_object_data(seen) + 5 + 3 * MIB, "end", 3);
        ASSERT_OK(folio_object_release(seen));
        free(large);
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* --- a list of zeros that changes while it is walked ---------------------------------------------------------------- */

enum { N_WALKERS = 3, PIECE = 2 * MIB, N_PIECES = 8 };

typedef struct Walker {
        struct folio_object *object;
        const uint8_t *model;        /* NULL: each byte is 0 or 7 */
        atomic_bool *is_over;
        unsigned seed;
        unsigned n_reads;
        int error;                   /* the first one */
        bool is_wrong;
} Walker;

static void *walk(void *userdata)
{
        Walker *walker = userdata;
        uint8_t *buffer = malloc(3 * MIB);
        uint64_t random = walker->seed;

        while (buffer && walker->error == 0 && !walker->is_wrong &&
               (walker->n_reads < 20 || !atomic_load(walker->is_over))) {
                uint64_t offset, n;

                random = random * UINT64_C(6364136223846793005) + 1;
                offset = (random >> 33) % (N_PIECES * PIECE);
                n = 1 + (random >> 20) % (walker->n_reads % 2 ? 5000 : 3 * MIB);
                n = offset + n > N_PIECES * PIECE ? N_PIECES * PIECE - offset : n;
                walker->error = folio_object_read(walker->object, offset, buffer, n);
                /* A mutable one that is shorter now. */
                if (!walker->model && walker->error == FOLIO_E_RANGE)
                        walker->error = 0;
                else if (walker->error == 0 && walker->model)
                        walker->is_wrong = memcmp(buffer, walker->model + offset, n) != 0;
                else if (walker->error == 0)
                        for (size_t i = 0; i < n; i++)
                                walker->is_wrong = walker->is_wrong || (buffer[i] != 0 && buffer[i] != 7);
                walker->n_reads++;
        }
        free(buffer);
        return NULL;
}

static void start_walkers(Walker walkers[N_WALKERS], pthread_t threads[N_WALKERS], struct folio_object *object,
                          const uint8_t *model, atomic_bool *is_over)
{
        for (unsigned i = 0; i < N_WALKERS; i++) {
                walkers[i] = (Walker){ .object = object, .model = model, .is_over = is_over, .seed = i + 1 };
                assert_int_equal(pthread_create(&threads[i], NULL, walk, &walkers[i]), 0);
        }
}

static void end_walkers(Walker walkers[N_WALKERS], pthread_t threads[N_WALKERS], atomic_bool *is_over)
{
        atomic_store(is_over, true);
        for (unsigned i = 0; i < N_WALKERS; i++) {
                pthread_join(threads[i], NULL);
                ASSERT_OK(walkers[i].error);
                assert_false(walkers[i].is_wrong);
        }
}

static uint64_t zero_bytes(struct folio_object *object)
{
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };

        ASSERT_OK(folio_object_stat(object, &stat));
        return stat.zero_bytes;
}

/* One handle, many threads: at the seal the holes are listed, and then, while they read, the pieces of written zeros. */
static void test_more_zeros_are_found_while_reading(void **state)
{
        Foliod *foliod = foliod_start("--budget", "256M", NULL);
        struct folio_client *client = foliod_connect(foliod);
        uint8_t *model = calloc(N_PIECES, PIECE);

        assert_non_null(model);
        for (unsigned piece = 0; piece < N_PIECES; piece += 2)
                memset(model + (size_t)piece * PIECE, (int)piece + 1, PIECE);
        for (unsigned round = 0; round < 6; round++) {
                struct folio_object *object;
                Walker walkers[N_WALKERS];
                pthread_t threads[N_WALKERS];
                atomic_bool is_over = false;

                ASSERT_OK(folio_create(client, "zeros", N_PIECES * PIECE, NULL, &object));
                /* Written zeros everywhere but in the last piece, which is never written. */
                ASSERT_OK(folio_object_write(object, 0, model, (N_PIECES - 1) * PIECE));
                ASSERT_OK(folio_object_seal(object));
                start_walkers(walkers, threads, object, model, &is_over);
                AWAIT(zero_bytes(object) >= 4ull * PIECE);
                if (round % 2)
                        ASSERT_OK(folio_delete(client, "zeros", 0));
                end_walkers(walkers, threads, &is_over);
                ASSERT_OK(folio_object_release(object));
                if (round % 2 == 0)
                        ASSERT_OK(folio_delete(client, "zeros", 0));
        }
        free(model);
        folio_client_unref(client);
        foliod_stop(foliod);
}

static void test_truncated_while_reading(void **state)
{
        const struct folio_create_options options = {
                .struct_bytes = sizeof(options),
                .flags = FOLIO_MUTABLE | FOLIO_SPARSE,
                .capacity_bytes = N_PIECES * PIECE,
        };
        Foliod *foliod = foliod_start("--budget", "256M", NULL);
        struct folio_client *client = foliod_connect(foliod), *other = foliod_connect(foliod);
        struct folio_object *object, *reader;
        Walker walkers[N_WALKERS];
        pthread_t threads[N_WALKERS];
        atomic_bool is_over = false;
        uint8_t *sevens = malloc(MIB);

        assert_non_null(sevens);
        memset(sevens, 7, MIB);
        ASSERT_OK(folio_create(other, "sparse", N_PIECES * PIECE, &options, &object));
        ASSERT_OK(folio_get(client, "sparse", FOLIO_GET_UNMAPPED, 0, &reader));
        start_walkers(walkers, threads, reader, NULL, &is_over);
        for (unsigned round = 0; round < 60; round++) {
                ASSERT_OK(folio_object_write(object, (round * 7 % 15) * MIB, sevens, MIB));
                ASSERT_OK(folio_object_truncate(object, (1 + round * 5 % 15) * MIB));
                ASSERT_OK(folio_object_truncate(object, N_PIECES * PIECE));
        }
        ASSERT_OK(folio_delete(other, "sparse", 0));
        end_walkers(walkers, threads, &is_over);
        ASSERT_OK(folio_object_release(reader));
        ASSERT_OK(folio_object_release(object));
        free(sevens);
        folio_client_unref(other);
        folio_client_unref(client);
        foliod_stop(foliod);
}

/* --- an end in the middle of a large create ------------------------------------------------------------------------------------ */

static void create_large(Child *child)
{
        struct folio_client *client = child_connect(child);
        struct folio_object *object;
        int r;

        child_say(child, 1);
        r = folio_create(client, "large", 400ull * MIB, NULL, &object);
        CHECK(r == 0 || r == FOLIO_E_DAEMON_GONE || r == FOLIO_E_CANCELLED);
        if (r == 0)
                CHECK(folio_object_release(object) <= 0);
        folio_client_unref(client);
}

static void test_sigterm_while_large_objects_are_made(void **state)
{
        for (int pause = 0; pause < 4; pause++) {
                Foliod *foliod = foliod_start("--budget", "1G", "--huge", pause % 2 ? "always" : "never", NULL);
                Child *children[2];

                for (int i = 0; i < 2; i++)
                        children[i] = child_start(foliod, create_large, NULL);
                for (int i = 0; i < 2; i++)
                        (void)child_hear(children[i]);
                for (int i = 0; i < 5 * pause; i++)
                        harness_pause();
                foliod_stop(foliod);
                for (int i = 0; i < 2; i++)
                        child_finish(children[i]);
        }
}

/* The same of a client that goes: what was made for it is nobody's, and comes back. */
static void test_a_client_goes_while_its_object_is_made(void **state)
{
        Foliod *foliod = foliod_start("--budget", "500M", "--pool", "0", NULL);
        struct folio_client *client = foliod_connect(foliod);

        for (int i = 0; i < 6; i++) {
                Child *child = child_start(foliod, create_large, NULL);

                (void)child_hear(child);
                for (int j = 0; j < i; j++)
                        harness_pause();
                child_kill(child);
                AWAIT(foliod_fact(client, "clients.count") == 1);
                AWAIT(foliod_fact(client, "memory.used_bytes") == 0);
        }
        folio_client_unref(client);
        foliod_stop(foliod);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_stat_while_a_replacement_is_sealed),
                INTEGRATION_TEST(test_map_while_it_is_sealed),
                INTEGRATION_TEST(test_a_stream_has_one_writer),
                INTEGRATION_TEST(test_more_zeros_are_found_while_reading),
                INTEGRATION_TEST(test_truncated_while_reading),
                INTEGRATION_TEST(test_sigterm_while_large_objects_are_made),
                INTEGRATION_TEST(test_a_client_goes_while_its_object_is_made),
        };

        return cmocka_run_group_tests_name("race", tests, NULL, NULL);
}
