/* SPDX-License-Identifier: Apache-2.0 */
/* The two namespaces. A lease comes with the 64th object, or with 64 KiB; three times as many is safely behind it. */
#include "tests/integration/spaces.h"

enum { N_WARM = 200 };

const char *const spaces_names[N_SPACES] = { "default", "trusted" };

Foliod *spaces_start(void)
{
        return foliod_start("--budget", "256M", ALIVE_NO_POOL, FOLIOD_TRUSTED, NULL);
}

void spaces_warm_up(struct folio_client *client, const char *space)
{
        char name[64];

        for (unsigned i = 0; i < N_WARM; i++) {
                (void)snprintf(name, sizeof(name), "%s:warm %d %u", space, (int)getpid(), i);
                CHECK_OK(folio_put(client, name, name, sizeof(name), NULL));
        }
        for (unsigned i = 0; i < N_WARM; i++) {
                (void)snprintf(name, sizeof(name), "%s:warm %d %u", space, (int)getpid(), i);
                CHECK_OK(folio_delete(client, name, 0));
        }
        CHECK_OK(folio_flush(client));
}

void spaces_await_sessions(struct folio_client *client, uint64_t n)
{
        AWAIT(foliod_fact(client, "sessions.count") == n);
}

static unsigned go_through(struct folio_client *client, const char *prefix, bool is_delete)
{
        struct folio_stat entries[16] = { { .struct_bytes = sizeof(entries[0]) } };
        struct folio_list *list;
        unsigned total = 0;
        int n;

        CHECK_OK(folio_list_open(client, prefix, &list));
        while ((n = folio_list_next(list, entries, 16)) > 0)
                for (int i = 0; i < n; i++, total++)
                        if (is_delete)
                                CHECK_OK(folio_delete(client, entries[i].name, 0));
        CHECK(n == 0);
        folio_list_close(list);
        return total;
}

unsigned spaces_delete_all(struct folio_client *client, const char *prefix)
{
        return go_through(client, prefix, true);
}

unsigned spaces_count(struct folio_client *client, const char *prefix)
{
        return go_through(client, prefix, false);
}

struct folio_namespace spaces_get(struct folio_client *client, const char *space)
{
        struct folio_namespace entries[16] = { { .struct_bytes = sizeof(entries[0]) } };
        int n = folio_namespace_list(client, NULL, entries, 16);

        CHECK(n > 0);
        for (int i = 0; i < n; i++)
                if (strcmp(entries[i].name, space) == 0)
                        return entries[i];
        CHECK(!"there is such a namespace");
        return entries[0];
}

Scene scene_begin(void)
{
        Foliod *foliod = spaces_start();
        Scene scene = { .foliod = foliod, .before = alive_begin(foliod) };

        scene.client = foliod_connect_with(foliod, 0);
        for (unsigned s = 0; s < N_SPACES; s++)
                spaces_warm_up(scene.client, spaces_names[s]);
        return scene;
}

void scene_work(Scene *scene)
{
        char name[64] = "", read[64];

        for (unsigned s = 0; s < N_SPACES; s++) {
                (void)snprintf(name, sizeof(name), "%s:polite %u", spaces_names[s], scene->n_worked++);
                ASSERT_OK(folio_put(scene->client, name, name, sizeof(name), NULL));
                ASSERT_OK(folio_read(scene->client, name, 0, read, sizeof(read)));
                assert_memory_equal(read, name, sizeof(name));
                ASSERT_OK(folio_flush(scene->client));
                ASSERT_OK(folio_delete(scene->client, name, 0));
        }
}

void scene_end(Scene *scene)
{
        spaces_await_sessions(scene->client, 1);
        scene_work(scene);
        for (unsigned s = 0; s < N_SPACES; s++) {
                char prefix[64];

                (void)snprintf(prefix, sizeof(prefix), "%s:", spaces_names[s]);
                (void)spaces_delete_all(scene->client, prefix);
                assert_int_equal(spaces_get(scene->client, spaces_names[s]).unsealed_bytes, 0);
        }
        ASSERT_OK(folio_flush(scene->client));
        folio_client_unref(scene->client);
        alive_check(&scene->before);
        foliod_stop(scene->foliod);
}
