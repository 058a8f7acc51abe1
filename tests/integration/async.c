/* SPDX-License-Identifier: Apache-2.0 */
/* See async.h. */
#include "tests/integration/async.h"

unsigned async_n_done;

void async_on_done(struct folio_client *client, int error, struct folio_object *object, void *userdata)
{
        Done *done = userdata;

        assert_non_null(client);
        assert_true(error >= 0 || !object);
        async_n_done++;
        done->n++;
        done->error = error;
        done->object = object;
        snprintf(done->sentence, sizeof(done->sentence), "%s", error ? folio_strerror_full() : "");
}

void async_turn(struct folio_client *client)
{
        struct pollfd fd = { .fd = folio_client_get_fd(client), .events = (short)folio_client_get_events(client) };

        assert_true(fd.fd >= 0);
        assert_int_equal(poll(&fd, 1, 20000), 1);
        assert_true(folio_client_process(client) >= 0);
}

int async_finish(struct folio_client *client, Done *done)
{
        while (done->n == 0)
                async_turn(client);
        assert_int_equal(done->n, 1);
        done->n = 0;
        return done->error;
}

struct folio_open_options async_options(const Foliod *foliod)
{
        return (struct folio_open_options){ .struct_bytes = sizeof(struct folio_open_options), .address = foliod->socket_path,
                                            .flags = FOLIO_OPEN_VISIBLE };
}

AsyncItems *async_items_new(void)
{
        static const struct folio_create_options own = { .struct_bytes = sizeof(own), .flags = FOLIO_OWN_REGION };
        AsyncItems *items = calloc(1, sizeof(*items));

        assert_non_null(items);
        for (size_t i = 0; i < ASYNC_N_ITEMS; i++) {
                const char *name = items->names[i];

                snprintf(items->names[i], sizeof(items->names[i]), "%sb%zu", i % 2 ? "other:" : "", i);
                items->facts[i].struct_bytes = sizeof(items->facts[i]);
                items->puts[i] = (struct folio_put_item){ .name = name, .data = name, .size_bytes = 24,
                                                          .options = i < ASYNC_N_LARGE ? &own : NULL };
                items->gets[i] = (struct folio_get_item){ .name = name };
                items->stats[i] = (struct folio_stat_item){ .name = name, .stat = &items->facts[i] };
                items->reads[i] = (struct folio_read_item){ .name = name, .buffer = items->copies[i], .n_bytes = 24 };
                items->deletes[i] = (struct folio_delete_item){ .name = name };
        }
        return items;
}
