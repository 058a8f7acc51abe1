/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches: many objects in one call, any number of them. Each item has its own result; what the shared index answers
 * costs no round trip, the rest at most one for every few hundred items. Items are independent: the failure of one
 * does not touch the others.
 */
#ifndef FOLIO_BATCH_H
#define FOLIO_BATCH_H

#include <folio/object.h>

#ifdef __cplusplus
extern "C" {
#endif

struct folio_put_item {
        const char *name;
        const void *data;
        uint64_t size_bytes;
        const struct folio_create_options *options; /* NULL for defaults */
        int error;                                  /* out */
};

struct folio_get_item {
        const char *name;
        struct folio_object *object;                /* out: a handle, where error is 0 */
        int error;                                  /* out */
};

struct folio_stat_item {
        const char *name;
        struct folio_stat *stat;                    /* its struct_bytes is set by the caller */
        int error;                                  /* out */
};

struct folio_read_item {
        const char *name;                           /* either this */
        struct folio_object *object;                /* or this; the other is NULL */
        uint64_t offset_bytes;
        void *buffer;
        size_t n_bytes;
        int error;                                  /* out */
};

struct folio_delete_item {
        const char *name;
        uint32_t flags;                             /* FOLIO_IF_EXISTS */
        int error;                                  /* out */
};

/**
 * folio_put_many() - folio_put() for each item
 * folio_get_many() - folio_get() for each item; @timeout_ms bounds the wait for all of them together
 * folio_stat_many() - folio_stat() for each item
 * folio_read_many() - folio_read() or folio_object_read() for each item
 * folio_delete_many() - folio_delete() for each item
 * @client:  borrowed
 * @items:   @n_items of them; each error is written
 * @n_items: any number
 *
 * Of the items that fail the first one has the sentence of folio_strerror_full(): "item 3 of 12: ...", counted from 1,
 * with its name.
 *
 * The asynchronous forms borrow @items, and all that they point to, until they complete. Where the client is closed
 * before, they complete with FOLIO_E_CANCELLED, and so do the items that were not done. An object of another client is
 * FOLIO_E_INVALID in folio_read_many_async() where it is not mapped.
 *
 * Lifetime:  as the single calls.
 * Blocking:  one round trip for every few hundred items that need the daemon, all under way at once.
 * Threads:   any.
 * Return:    the number of items that failed, 0 when none did; FOLIO_E_INVALID @items is NULL; FOLIO_E_FORKED;
 *            FOLIO_E_NO_MEMORY nothing was begun.
 * Since:     0.1
 */
int folio_put_many(struct folio_client *client, struct folio_put_item *items, size_t n_items);
int folio_get_many(struct folio_client *client, struct folio_get_item *items, size_t n_items, uint32_t flags,
                   int timeout_ms);
int folio_stat_many(struct folio_client *client, struct folio_stat_item *items, size_t n_items);
int folio_read_many(struct folio_client *client, struct folio_read_item *items, size_t n_items);
int folio_delete_many(struct folio_client *client, struct folio_delete_item *items, size_t n_items);
int folio_put_many_async(struct folio_client *client, struct folio_put_item *items, size_t n_items, folio_done_fn done,
                         void *userdata);
int folio_get_many_async(struct folio_client *client, struct folio_get_item *items, size_t n_items, uint32_t flags,
                         int timeout_ms, folio_done_fn done, void *userdata);
int folio_stat_many_async(struct folio_client *client, struct folio_stat_item *items, size_t n_items,
                          folio_done_fn done, void *userdata);
int folio_read_many_async(struct folio_client *client, struct folio_read_item *items, size_t n_items,
                          folio_done_fn done, void *userdata);
int folio_delete_many_async(struct folio_client *client, struct folio_delete_item *items, size_t n_items,
                            folio_done_fn done, void *userdata);

#ifdef __cplusplus
}
#endif

#endif
