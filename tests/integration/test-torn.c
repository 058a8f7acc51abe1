/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small objects that are replaced and deleted all the time, in two namespaces, while others read them without holding
 * them. Every eight bytes say whose they are: the namespace, the name, the writer, the version, the place. So whatever
 * is read shows by itself whether it is all of one object, and of the one that was asked for; and of each writer nobody
 * may see an older version after a newer one.
 */
#include "tests/integration/harness.h"

#include "tests/integration/alive.h"

enum {
        N_NAMES = 24,
        N_SPACES = 2,
        N_WRITERS = 2,
        N_READERS = 3,
        N_ITEMS = 32,
        N_ROUNDS = 1500,
        WORDS_MIN = 8,
        WORDS_MAX = 4096,
};

static const char *const space_names[N_SPACES] = { "default", "other" };

typedef struct Part {
        unsigned number;
        bool is_deleting;
} Part;

static uint64_t word_of(unsigned space, unsigned name, unsigned writer, uint32_t version, size_t place)
{
        return (uint64_t)space << 60 | (uint64_t)name << 52 | (uint64_t)writer << 48 | (uint64_t)version << 16 |
               (uint16_t)place;
}

static uint64_t next_random(uint64_t *state)
{
        *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return *state >> 33;
}

static void make_name(char text[32], unsigned space, unsigned name)
{
        (void)snprintf(text, 32, "%s:torn-%u", space_names[space], name);
}

/* Mostly small, so that places are used again at once; sometimes large, so that regions come and go. */
static size_t draw_words(uint64_t *random)
{
        return next_random(random) % 16 == 0 ? WORDS_MAX - next_random(random) % 512 :
                                               WORDS_MIN + next_random(random) % 256;
}

/* --- writing ----------------------------------------------------------------------------------------------------- */

static void write_all(Child *child)
{
        const struct folio_create_options replace = { .struct_bytes = sizeof(replace), .flags = FOLIO_REPLACE };
        const Part *part = child->userdata;
        struct folio_client *client = child_connect(child);
        uint64_t *words = calloc(WORDS_MAX, sizeof(*words));
        uint64_t random = part->number + 1;
        struct pollfd stop = { .fd = child->socket, .events = POLLIN };
        char text[32];

        CHECK(words);
        for (uint32_t version = 1; poll(&stop, 1, 0) == 0; version++) {
                unsigned space = next_random(&random) % N_SPACES, name = next_random(&random) % N_NAMES;
                size_t n = draw_words(&random);
                int r;

                make_name(text, space, name);
                for (size_t i = 0; i < n; i++)
                        words[i] = word_of(space, name, part->number, version, i);
                CHECK_OK(folio_put(client, text, words, n * sizeof(*words), &replace));
                if (version == 1)
                        child_say(child, 1);
                if (!part->is_deleting || next_random(&random) % 4 != 0)
                        continue;
                make_name(text, next_random(&random) % N_SPACES, next_random(&random) % N_NAMES);
                r = folio_delete(client, text, FOLIO_IF_EXISTS);
                CHECK(r == 0 || r == FOLIO_E_NOT_FOUND || r == FOLIO_E_DELETED);
        }
        free(words);
        folio_client_unref(client);
}

/* --- reading ----------------------------------------------------------------------------------------------------- */

typedef struct Reader {
        struct folio_client *client;
        uint64_t random;
        uint64_t n_read;
        uint32_t newest[N_SPACES][N_NAMES][N_WRITERS];
} Reader;

static void check_words(Reader *reader, unsigned space, unsigned name, size_t first, const uint64_t *words, size_t n)
{
        unsigned writer = words[0] >> 48 & 0xf;
        uint32_t version = (uint32_t)(words[0] >> 16);

        CHECK(writer < N_WRITERS);
        for (size_t i = 0; i < n; i++)
                CHECK(words[i] == word_of(space, name, writer, version, first + i));
        CHECK(version >= reader->newest[space][name][writer]);
        reader->newest[space][name][writer] = version;
        reader->n_read++;
}

static bool is_absent(int error)
{
        return error == FOLIO_E_NOT_FOUND || error == FOLIO_E_DELETED || error == FOLIO_E_RANGE;
}

static void read_batch(Reader *reader)
{
        static uint64_t words[N_ITEMS][WORDS_MAX];
        struct folio_read_item items[N_ITEMS] = { 0 };
        unsigned spaces[N_ITEMS], names[N_ITEMS];
        char texts[N_ITEMS][32];
        int r;

        for (size_t i = 0; i < N_ITEMS; i++) {
                size_t first = next_random(&reader->random) % 64;

                spaces[i] = next_random(&reader->random) % N_SPACES;
                names[i] = next_random(&reader->random) % N_NAMES;
                make_name(texts[i], spaces[i], names[i]);
                items[i].name = texts[i];
                items[i].offset_bytes = first * 8;
                items[i].n_bytes = 8 * (1 + next_random(&reader->random) % (i % 8 == 0 ? WORDS_MAX - 64 : 128));
                items[i].buffer = words[i];
        }
        r = folio_read_many(reader->client, items, N_ITEMS);
        CHECK(r >= 0);
        /* Backwards: what is listed later was not always read later, and order is not asked of one batch. */
        for (size_t i = 0; i < N_ITEMS; i++) {
                uint32_t (*newest)[N_WRITERS] = &reader->newest[spaces[i]][names[i]];
                uint32_t before[N_WRITERS];

                if (items[i].error != 0) {
                        CHECK(is_absent(items[i].error));
                        continue;
                }
                memcpy(before, *newest, sizeof(before));
                memset(*newest, 0, sizeof(before));
                check_words(reader, spaces[i], names[i], items[i].offset_bytes / 8, words[i], items[i].n_bytes / 8);
                memcpy(*newest, before, sizeof(before));
        }
}

static void read_one(Reader *reader)
{
        static uint64_t words[WORDS_MAX];
        unsigned space = next_random(&reader->random) % N_SPACES, name = next_random(&reader->random) % N_NAMES;
        size_t n = 1 + next_random(&reader->random) % 256;
        char text[32];
        int r;

        make_name(text, space, name);
        r = folio_read(reader->client, text, 0, words, 8 * n);
        if (r == 0)
                check_words(reader, space, name, 0, words, n);
        else
                CHECK(is_absent(r));
}

/* Held: what is mapped stays as it is, and is of one object to its last byte. */
static void read_held(Reader *reader)
{
        unsigned space = next_random(&reader->random) % N_SPACES, name = next_random(&reader->random) % N_NAMES;
        struct folio_object *object;
        char text[32];
        int r;

        make_name(text, space, name);
        r = folio_get(reader->client, text, 0, 0, &object);
        if (r != 0) {
                CHECK(is_absent(r));
                return;
        }
        check_words(reader, space, name, 0, folio_object_data(object), folio_object_size(object) / 8);
        check_words(reader, space, name, 0, folio_object_data(object), folio_object_size(object) / 8);
        CHECK_OK(folio_object_release(object));
}

static void read_all(Child *child)
{
        const Part *part = child->userdata;
        Reader *reader = calloc(1, sizeof(*reader));

        CHECK(reader);
        reader->client = child_connect(child);
        reader->random = part->number + 100;
        for (unsigned i = 0; i < alive_scaled(N_ROUNDS); i++) {
                read_batch(reader);
                for (unsigned j = 0; j < 16; j++) {
                        read_one(reader);
                        read_held(reader);
                }
        }
        CHECK(reader->n_read > 0);
        child_say(child, reader->n_read);
        folio_client_unref(reader->client);
        free(reader);
}

static void run(bool is_deleting)
{
        const struct folio_namespace settings = { .struct_bytes = sizeof(settings), .name = "other" };
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        struct folio_client *client = foliod_connect(foliod);
        Child *writers[N_WRITERS], *readers[N_READERS];
        Part parts[N_WRITERS + N_READERS];

        ASSERT_OK(folio_namespace_add(client, &settings));
        for (unsigned i = 0; i < N_WRITERS; i++) {
                parts[i] = (Part){ i, is_deleting };
                writers[i] = child_start(foliod, write_all, &parts[i]);
        }
        for (unsigned i = 0; i < N_WRITERS; i++)
                (void)child_hear(writers[i]);
        for (unsigned i = 0; i < N_READERS; i++) {
                parts[N_WRITERS + i] = (Part){ i, false };
                readers[i] = child_start(foliod, read_all, &parts[N_WRITERS + i]);
        }
        for (unsigned i = 0; i < N_READERS; i++) {
                assert_true(child_hear(readers[i]) > 0);
                child_finish(readers[i]);
        }
        for (unsigned i = 0; i < N_WRITERS; i++) {
                child_say(writers[i], 1);
                child_finish(writers[i]);
        }
        folio_client_unref(client);
        foliod_stop(foliod);
}

static void test_replaced(void **state)
{
        run(false);
}

static void test_replaced_and_deleted(void **state)
{
        run(true);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_replaced),
                INTEGRATION_TEST(test_replaced_and_deleted),
        };

        return cmocka_run_group_tests_name("torn", tests, NULL, NULL);
}
