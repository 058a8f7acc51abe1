/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foliod is killed again and again, and comes back by its keeper, while programs read, write, wait, watch and list. They
 * do nothing about it, and see nothing of it but time: what was acknowledged is there, with its bytes and its number,
 * events come one after the other without a gap, and what is held goes on being readable.
 */
#include "tests/integration/harness.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
        N_KILLS = 30,
        N_FIXED = 24,
        N_TURNS_A_LIFE = 40,         /* of the writer, at least, before foliod is killed again */
        PUT_BYTES = 300,
        LARGE_BYTES = 3 << 20,
        N_NAMES_MAX = 1 << 20,
        WAIT_IDLE_MAX = 100,         /* tenths of a second without an event, when all is over */
};

/* What the processes of a story tell each other without being heard. */
typedef struct Story {
        atomic_bool is_over;
        atomic_uint n_turns;         /* of the writer */
        atomic_uint n_written;       /* names w-0 ... that are there, and stay */
        atomic_uint n_looked, n_watched, n_waited, n_listed;
        uint64_t last_event;
} Story;

static Story *story_new(void)
{
        Story *story = mmap(NULL, sizeof(*story), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        assert_true(story != MAP_FAILED);
        return story;
}

static size_t fixed_bytes(unsigned i)
{
        return i % 8 == 7 ? LARGE_BYTES : i % 4 == 3 ? 100000 : 100 + i;
}

static bool is_whole(struct folio_object *object, size_t n_bytes, uint64_t seed)
{
        const void *data = folio_object_data(object);

        CHECK(data);
        CHECK(folio_object_size(object) == n_bytes);
        return harness_is_filled(data, n_bytes, seed, 0);
}

/* --- those who read ---------------------------------------------------------------------------------------------------- */

typedef struct Reader {
        pthread_t thread;
        struct folio_client *client;
        Story *story;
        unsigned first;
} Reader;

static void *read_on(void *userdata)
{
        Reader *reader = userdata;
        char *buffer = malloc(LARGE_BYTES), name[32];
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };

        CHECK(buffer);
        for (unsigned i = reader->first; !atomic_load(&reader->story->is_over); i++) {
                struct folio_object *object;
                unsigned which = i % N_FIXED;
                size_t n_bytes = fixed_bytes(which);

                (void)snprintf(name, sizeof(name), "fixed-%u", which);
                CHECK_OK(folio_get(reader->client, name, 0, 0, &object));
                CHECK(is_whole(object, n_bytes, which));
                CHECK_OK(folio_object_release(object));
                CHECK_OK(folio_read(reader->client, name, 0, buffer, n_bytes));
                CHECK(harness_is_filled(buffer, n_bytes, which, 0));
                CHECK_OK(folio_stat(reader->client, name, &stat));
                CHECK(stat.size_bytes == n_bytes && strstr(stat.name, name));
                CHECK(folio_exists(reader->client, name) == 1);
                CHECK(folio_exists(reader->client, "never") == 0);
                atomic_fetch_add(&reader->story->n_looked, 1);
        }
        free(buffer);
        return NULL;
}

static void read_all(Child *child)
{
        Story *story = child->userdata;
        struct folio_client *client = child_connect_with(child, 0);
        struct folio_object *held[N_FIXED];
        Reader readers[2];
        char name[32];

        for (unsigned i = 0; i < N_FIXED; i++) {
                (void)snprintf(name, sizeof(name), "fixed-%u", i);
                CHECK_OK(folio_get(client, name, 0, 0, &held[i]));
                CHECK(is_whole(held[i], fixed_bytes(i), i));
        }
        child_say(child, 1);
        for (unsigned i = 0; i < 2; i++) {
                readers[i] = (Reader){ .client = client, .story = story, .first = i * 7 };
                CHECK(pthread_create(&readers[i].thread, NULL, read_on, &readers[i]) == 0);
        }
        for (unsigned i = 0; i < 2; i++)
                CHECK(pthread_join(readers[i].thread, NULL) == 0);
        for (unsigned i = 0; i < N_FIXED; i++) {
                CHECK(is_whole(held[i], fixed_bytes(i), i));
                CHECK_OK(folio_object_release(held[i]));
        }
        folio_client_unref(client);
}

/* --- who writes --------------------------------------------------------------------------------------------------------- */

typedef struct Writer {
        struct folio_client *client;
        Story *story;
        unsigned n_named;            /* asked for, and may be only under way */
        uint64_t generation;         /* of `replaced` */
        char data[PUT_BYTES];
        char *large;
} Writer;

static const char *next_name(Writer *writer, char name[32])
{
        (void)snprintf(name, 32, "w-%u", writer->n_named);
        harness_fill(writer->data, sizeof(writer->data), writer->n_named++);
        return name;
}

static void on_done(struct folio_client *client, int error, struct folio_object *object, void *userdata)
{
        (void)client;
        CHECK_OK(error);
        if (object)
                CHECK_OK(folio_object_release(object));
        *(unsigned *)userdata += 1;
}

static void write_async(Writer *writer)
{
        struct pollfd wait = { .fd = folio_client_get_fd(writer->client), .events = POLLIN };
        unsigned n_done = 0;
        char name[32];

        CHECK_OK(folio_put_async(writer->client, next_name(writer, name), writer->data, PUT_BYTES, NULL, on_done, &n_done));
        CHECK_OK(folio_get_async(writer->client, name, 0, 20000, on_done, &n_done));
        while (n_done < 2) {
                CHECK(poll(&wait, 1, 30000) == 1);
                CHECK(folio_client_process(writer->client) >= 0);
        }
}

static void write_many(Writer *writer)
{
        enum { N = 20 };
        struct folio_put_item items[N];
        char names[N][32], data[N][PUT_BYTES];

        for (unsigned i = 0; i < N; i++) {
                (void)next_name(writer, names[i]);
                memcpy(data[i], writer->data, PUT_BYTES);
                items[i] = (struct folio_put_item){ .name = names[i], .data = data[i], .size_bytes = PUT_BYTES };
        }
        CHECK_OK(folio_put_many(writer->client, items, N));
}

static void write_in_place(Writer *writer)
{
        struct folio_object *object;
        char name[32];

        CHECK_OK(folio_create(writer->client, next_name(writer, name), PUT_BYTES, NULL, &object));
        CHECK_OK(folio_object_write(object, 0, writer->data, PUT_BYTES));
        CHECK_OK(folio_object_seal(object));
        CHECK(is_whole(object, PUT_BYTES, writer->n_named - 1));
        CHECK_OK(folio_object_release(object));
}

static void write_large(Writer *writer)
{
        struct folio_create_options options = { .struct_bytes = sizeof(options), .flags = FOLIO_OWN_REGION | FOLIO_REPLACE };

        CHECK_OK(folio_put(writer->client, "large", writer->large, LARGE_BYTES, &options));
        CHECK(folio_exists(writer->client, "large") == 1);
        CHECK_OK(folio_delete(writer->client, "large", 0));
        CHECK(folio_exists(writer->client, "large") == 0);
}

static void write_stream(Writer *writer)
{
        struct folio_create_options options = { .struct_bytes = sizeof(options), .flags = FOLIO_STREAM | FOLIO_REPLACE };
        struct folio_object *object;

        CHECK_OK(folio_create(writer->client, "stream", 0, &options, &object));
        for (unsigned i = 0; i < 3; i++)
                CHECK_OK(folio_object_write(object, i * 100000, writer->large + i * 100000, 100000));
        CHECK_OK(folio_object_seal(object));
        CHECK(is_whole(object, 300000, 77));
        CHECK_OK(folio_object_release(object));
}

static void write_replaced(Writer *writer)
{
        struct folio_create_options options = { .struct_bytes = sizeof(options), .flags = FOLIO_REPLACE | FOLIO_PUT_VISIBLE };
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };

        CHECK_OK(folio_put(writer->client, "replaced", writer->data, 100, &options));
        CHECK_OK(folio_stat(writer->client, "replaced", &stat));
        CHECK(stat.generation > writer->generation);
        writer->generation = stat.generation;
}

static void write_turn(Writer *writer, unsigned turn)
{
        struct folio_create_options visible = { .struct_bytes = sizeof(visible), .flags = FOLIO_PUT_VISIBLE };
        char name[32];

        switch (turn % 8) {
        case 0:
                CHECK_OK(folio_put(writer->client, next_name(writer, name), writer->data, PUT_BYTES, NULL));
                break;
        case 1:
                CHECK_OK(folio_put(writer->client, next_name(writer, name), writer->data, PUT_BYTES, &visible));
                break;
        case 2:
                write_async(writer);
                break;
        case 3:
                write_many(writer);
                break;
        case 4:
                write_in_place(writer);
                break;
        case 5:
                write_large(writer);
                break;
        case 6:
                write_stream(writer);
                break;
        case 7:
                write_replaced(writer);
                CHECK_OK(folio_flush(writer->client));
                atomic_store(&writer->story->n_written, writer->n_named);
                break;
        }
}

static void write_all(Child *child)
{
        Writer writer = { .client = child_connect_with(child, 0), .story = child->userdata, .large = malloc(LARGE_BYTES) };
        int fd = folio_client_get_fd(writer.client);

        CHECK(writer.large);
        harness_fill(writer.large, LARGE_BYTES, 77);
        child_say(child, 1);
        for (unsigned turn = 0; !atomic_load(&writer.story->is_over) || turn % 8 != 0; turn++) {
                write_turn(&writer, turn);
                atomic_fetch_add(&writer.story->n_turns, 1);
        }
        CHECK(folio_client_get_fd(writer.client) == fd);
        folio_client_unref(writer.client);
        free(writer.large);
}

/* --- who waits, watches, lists ------------------------------------------------------------------------------------------ */

static void wait_all(Child *child)
{
        Story *story = child->userdata;
        struct folio_client *client = child_connect_with(child, 0);
        char name[32];

        child_say(child, 1);
        for (unsigned i = 0;; i++) {
                struct folio_object *object;
                int r;

                (void)snprintf(name, sizeof(name), "w-%u", i);
                do
                        r = folio_get(client, name, 0, 300, &object);
                while (r == FOLIO_E_TIMEOUT && !atomic_load(&story->is_over));
                if (r == FOLIO_E_TIMEOUT)
                        break;
                CHECK_OK(r);
                CHECK(is_whole(object, PUT_BYTES, i));
                CHECK_OK(folio_object_release(object));
                atomic_fetch_add(&story->n_waited, 1);
        }
        folio_client_unref(client);
}

/* Each name once, in the order in which it was put; numbers without a gap. */
static unsigned take_event(const struct folio_event *event, bool *is_seen)
{
        const char *name = strstr(event->name, ":w-");
        unsigned number = name ? (unsigned)strtoul(name + 3, NULL, 10) : N_NAMES_MAX;

        if (!name || event->type != FOLIO_EVENT_SEALED)
                return 0;
        CHECK(number < N_NAMES_MAX && !is_seen[number]);
        is_seen[number] = true;
        return 1;
}

static void watch_all(Child *child)
{
        Story *story = child->userdata;
        struct folio_client *client = child_connect_with(child, 0);
        struct folio_event event = { .struct_bytes = sizeof(event) };
        bool *is_seen = calloc(N_NAMES_MAX, sizeof(*is_seen)), is_over = false;
        struct pollfd wait = { .events = POLLIN };
        struct folio_watch *watch;
        uint64_t sequence = 0;
        unsigned n_sealed = 0, n_idle = 0;

        CHECK(is_seen);
        CHECK_OK(folio_watch_open(client, "", 0, &watch));
        wait.fd = folio_watch_get_fd(watch);
        CHECK(wait.fd >= 0);
        child_say(child, 1);
        while (!is_over) {
                int r;

                is_over = atomic_load(&story->is_over) && n_sealed == atomic_load(&story->n_written);
                r = folio_watch_next(watch, 0, &event);
                CHECK(r >= 0);
                if (r == 0) {
                        if (poll(&wait, 1, 100) == 0 && atomic_load(&story->is_over))
                                CHECK(n_idle++ < WAIT_IDLE_MAX);
                        continue;
                }
                CHECK(event.type != FOLIO_EVENT_MISSED);
                CHECK(sequence == 0 || event.sequence == sequence + 1);
                sequence = event.sequence;
                atomic_fetch_add(&story->n_watched, 1);
                n_sealed += take_event(&event, is_seen);
        }
        folio_watch_close(watch);
        folio_client_unref(client);
        free(is_seen);
}

static void list_all(Child *child)
{
        Story *story = child->userdata;
        struct folio_client *client = child_connect_with(child, 0);

        child_say(child, 1);
        while (!atomic_load(&story->is_over)) {
                struct folio_stat entries[64] = { { .struct_bytes = sizeof(entries[0]) } };
                struct folio_namespace spaces[8] = { { .struct_bytes = sizeof(spaces[0]) } };
                struct folio_status facts[1] = { { .struct_bytes = sizeof(facts[0]) } };
                unsigned n_written = atomic_load(&story->n_written), n = 0;
                struct folio_list *list;
                int r;

                CHECK_OK(folio_list_open(client, "w-", &list));
                while ((r = folio_list_next(list, entries, 64)) > 0)
                        n += (unsigned)r;
                CHECK_OK(r);
                CHECK(n >= n_written);
                folio_list_close(list);
                CHECK(folio_namespace_list(client, NULL, spaces, 8) >= 1);
                CHECK(folio_status_get(client, facts, 1) > 0);
                atomic_fetch_add(&story->n_listed, 1);
        }
        folio_client_unref(client);
}

/* Whether it was done may not be known; where it was said to be, it is. */
static void administer(Child *child)
{
        Story *story = child->userdata;
        struct folio_client *client = child_connect_with(child, 0);
        bool is_there = false;

        child_say(child, 1);
        while (!atomic_load(&story->is_over)) {
                struct folio_namespace space = { .struct_bytes = sizeof(space), .name = "extra" };
                int r = is_there ? folio_namespace_remove(client, "extra") : folio_namespace_add(client, &space);

                if (r == FOLIO_E_DAEMON_GONE) {
                        CHECK(strstr(folio_strerror_full(), "is not known"));
                        r = folio_put(client, "extra:x", "x", 1, NULL);
                        is_there = r == 0 || r == FOLIO_E_EXISTS;
                        CHECK(is_there || r == FOLIO_E_NOT_FOUND);
                        if (is_there)
                                CHECK_OK(folio_delete(client, "extra:x", 0));
                        continue;
                }
                CHECK_OK(r);
                is_there = !is_there;
        }
        folio_client_unref(client);
}

/* --- the story ---------------------------------------------------------------------------------------------------------- */

static void put_fixed(struct folio_client *client)
{
        char *data = malloc(LARGE_BYTES), name[32];

        assert_non_null(data);
        for (unsigned i = 0; i < N_FIXED; i++) {
                (void)snprintf(name, sizeof(name), "fixed-%u", i);
                harness_fill(data, fixed_bytes(i), i);
                ASSERT_OK(folio_put(client, name, data, fixed_bytes(i), NULL));
        }
        free(data);
}

static void kill_daemon(Foliod *foliod, Story *story)
{
        unsigned turn = atomic_load(&story->n_turns), looked = atomic_load(&story->n_looked);
        pid_t pid = 0;

        pid = foliod_serving_pid(foliod);
        AWAIT(atomic_load(&story->n_turns) >= turn + N_TURNS_A_LIFE + turn % 7 && atomic_load(&story->n_looked) > looked);
        assert_int_equal(kill(pid, SIGKILL), 0);
        AWAIT(foliod_serving_pid(foliod) != pid);
}

static void check_written(struct folio_client *client, unsigned n_written)
{
        char buffer[PUT_BYTES], name[32];

        for (unsigned i = 0; i < n_written; i++) {
                (void)snprintf(name, sizeof(name), "w-%u", i);
                ASSERT_OK(folio_read(client, name, 0, buffer, sizeof(buffer)));
                assert_true(harness_is_filled(buffer, sizeof(buffer), i, 0));
        }
}

static void kill_again_and_again(const char *option)
{
        /* Who watches comes first: it counts the names. */
        static void (*const parts[])(Child *) = { watch_all, read_all, write_all, wait_all, list_all, administer };
        Foliod *foliod = foliod_start("--keeper", "process", "--budget", "512M", option, NULL);
        struct folio_client *client = foliod_connect(foliod);
        Child *children[sizeof(parts) / sizeof(parts[0])];
        Story *story = story_new();

        put_fixed(client);
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
                children[i] = child_start(foliod, parts[i], story);
                assert_int_equal(child_hear(children[i]), 1);
        }
        for (unsigned i = 0; i < N_KILLS; i++)
                kill_daemon(foliod, story);
        atomic_store(&story->is_over, true);
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
                child_finish(children[i]);
        check_written(client, atomic_load(&story->n_written));
        assert_true(atomic_load(&story->n_listed) > 0 && atomic_load(&story->n_waited) > 0);
        assert_int_equal(foliod_fact(client, "sessions.ghosts"), 0);
        folio_client_unref(client);
        foliod_stop(foliod);
        (void)munmap(story, sizeof(*story));
}

static void test_of_the_machine(void **state)
{
        (void)state;
        kill_again_and_again(NULL);
}

static void test_of_a_user(void **state)
{
        (void)state;
        kill_again_and_again(FOLIOD_OF_USER);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_of_the_machine),
                INTEGRATION_TEST(test_of_a_user),
        };

        return cmocka_run_group_tests_name("reconnect", tests, NULL, NULL);
}
