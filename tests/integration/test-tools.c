/* SPDX-License-Identifier: Apache-2.0 */
/* Tools get in whatever has used up the connections, or what these take (case E11), and as few of them as is said. */
#include "tests/integration/alive.h"
#include "tests/integration/program.h"

#include "base/macro.h"

static int open_as(const Foliod *foliod, uint32_t flags, struct folio_client **ret)
{
        const struct folio_open_options options = {
                .struct_bytes = sizeof(options), .address = foliod->socket_path, .flags = flags, .timeout_ms = 20000,
        };

        return folio_client_open(&options, ret);
}

static void be_a_tool(Child *child)
{
        struct folio_client *client;
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };

        CHECK(open_as(child->foliod, 0, &client) == FOLIO_E_LIMIT);
        CHECK_OK(open_as(child->foliod, FOLIO_OPEN_TOOL, &client));
        CHECK_OK(folio_stat(client, "last", &stat));
        CHECK_OK(folio_delete(client, "last", 0));
        CHECK_OK(folio_put(client, "last", "tool", 4, NULL));
        CHECK_OK(folio_flush(client));
        folio_client_unref(client);
}

/*
 * E11: the clients of a uid have used up all connections, or all that these may take: folioctl gets in still, as the same
 * uid, and can look, and delete. So do four of its kind at a time, and no more.
 */
static void test_e11_tools_always_get_in(void **state)
{
        enum { N_CLIENTS_MAX = 12, N_TOOLS = 4 };
        static const char *const limits[][2] = { { "--clients-max", "8" }, { "--session-max", "1M" } };

        (void)state;
        for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
                Foliod *foliod = foliod_start("--budget", "256M", limits[i][0], limits[i][1], ALIVE_NO_POOL, NULL);
                char *const status[] = {
                        getenv("FOLIOCTL"), (char *)"--socket", foliod->socket_path, (char *)"status", NULL,
                };
                struct folio_client *clients[N_CLIENTS_MAX] = { NULL }, *tools[N_TOOLS + 1];
                char output[4096];
                size_t n = 0;
                int r = 0;

                while (n < N_CLIENTS_MAX && (r = open_as(foliod, 0, &clients[n])) == 0) {
                        struct folio_object *object;

                        /* What a connection takes is seen as it is used. */
                        ASSERT_OK(folio_put(clients[n], n == 0 ? "last" : "other", "0123456789", 10,
                                            &(struct folio_create_options){ .struct_bytes = sizeof(struct folio_create_options),
                                                                              .flags = FOLIO_REPLACE }));
                        ASSERT_OK(folio_get(clients[n], "last", 0, 0, &object));
                        ASSERT_OK(folio_object_release(object));
                        n++;
                }
                assert_int_equal(r, FOLIO_E_LIMIT);
                assert_in_range(n, 1, N_CLIENTS_MAX - 1);
                child_finish(child_start(foliod, be_a_tool, NULL));
                for (size_t k = 0; k < N_TOOLS; k++)
                        ASSERT_OK(open_as(foliod, FOLIO_OPEN_TOOL, &tools[k]));
                assert_int_equal(open_as(foliod, FOLIO_OPEN_TOOL, &tools[N_TOOLS]), FOLIO_E_LIMIT);
                for (size_t k = 0; k < N_TOOLS; k++)
                        folio_client_unref(tools[k]);
                for (int k = 0; k < 3; k++)
                        assert_int_equal(program_run(status, output, sizeof(output)), 0);
                for (size_t k = 0; k < n; k++)
                        folio_client_unref(clients[k]);
                foliod_stop(foliod);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_e11_tools_always_get_in),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
