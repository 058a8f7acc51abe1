/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists. The names are collected once, at the opening: all slots are read, and then the event log from where it was
 * before that, for what was put into a slot behind us while we read. Sorted, each once. What is told of a name is looked
 * up when its page is asked for; a name that has gone by then is left out.
 *
 * Names, not objects: so a replaced object is one entry, whichever of its two slots the reading met.
 */
#include "client/list.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "client/get.h"
#include "client/order.h"
#include "client/resume.h"
#include "client/stat.h"

enum {
        LIST_ROUNDS_MAX = 8,
        LIST_SLOT_TRIES_MAX = 10000, /* at one slot that could be read, but not its name: it changes all the time */
};

typedef struct ListEntry {
        uint64_t head;               /* the first 8 bytes behind the prefix, as a number that sorts as they do */
        uint64_t offset;             /* in `keys`: a byte with the length, then the key */
} ListEntry;

struct folio_list {
        Client *client;              /* a user of it */
        Space *space;
        Key prefix;                  /* in prefix_bytes */
        uint8_t *keys;
        uint64_t keys_bytes, keys_room;
        ListEntry *entries;
        size_t n_entries, n_room;
        size_t next;
        char prefix_bytes[FOLIO_KEY_BYTES_MAX + 1];
};

bool list_set_prefix(Op *op, const char *prefix)
{
        size_t n_bytes = prefix ? strnlen(prefix, sizeof(op->name)) : sizeof(op->name);
        Key namespace;

        if (n_bytes < sizeof(op->name)) {
                memcpy(op->name, prefix, n_bytes + 1);
                if (key_split_name(op->name, true, &namespace, &op->key))
                        return true;
        }
        op_fail_as_thread(op, error_set_name(prefix, true));
        return false;
}

void list_open_prefix(Op *op, OpStep step)
{
        Key namespace;

        if (op->error || !key_split_name(op->name, true, &namespace, &op->key))
                step(op);
        else
                names_open(op, namespace, step);
}

bool list_check_readable(Op *op)
{
        if (op->error == 0 && !op->space->shared)
                op_fail(op, FOLIO_E_ACCESS, "this user may not read in namespace %s", op->space->name);
        return op->error == 0;
}

bool list_has_prefix(const void *key, size_t n_bytes, Key prefix)
{
        return n_bytes >= prefix.n_bytes && memcmp(key, prefix.bytes, prefix.n_bytes) == 0;
}

/* --- collecting ------------------------------------------------------------------------------------------------------------------------- */

/* Twice the room, to at least @wanted of @each_bytes. False: no memory. */
static bool grow(void *array, size_t *room, size_t wanted, size_t each_bytes)
{
        size_t n = MAX(*room * 2, (size_t)1024);
        void *larger;

        if (wanted <= *room)
                return true;
        n = MAX(n, wanted);
        larger = n <= SIZE_MAX / each_bytes ? realloc(*(void **)array, n * each_bytes) : NULL;
        if (!larger)
                return false;
        *(void **)array = larger;
        *room = n;
        return true;
}

static uint64_t head_of(const uint8_t *key, size_t n_bytes, size_t n_skip)
{
        uint64_t head = 0;

        for (size_t i = 0; i < 8; i++)
                head = head << 8 | (n_skip + i < n_bytes ? key[n_skip + i] : 0);
        return head;
}

static bool collect(struct folio_list *list, const uint8_t *key, size_t n_bytes)
{
        size_t room = (size_t)list->keys_room;
        ListEntry *entry;

        if (!list_has_prefix(key, n_bytes, list->prefix))
                return true;
        if (!grow(&list->entries, &list->n_room, list->n_entries + 1, sizeof(*list->entries)) ||
            !grow(&list->keys, &room, (size_t)list->keys_bytes + 1 + n_bytes, 1))
                return false;
        list->keys_room = room;
        entry = &list->entries[list->n_entries++];
        entry->head = head_of(key, n_bytes, list->prefix.n_bytes);
        entry->offset = list->keys_bytes;
        list->keys[list->keys_bytes] = (uint8_t)n_bytes;
        memcpy(list->keys + list->keys_bytes + 1, key, n_bytes);
        list->keys_bytes += 1 + n_bytes;
        return true;
}

static bool is_named(const LayoutSlot *copy)
{
        return copy->state == LAYOUT_SLOT_WRITING || copy->state == LAYOUT_SLOT_SEALED || copy->state == LAYOUT_SLOT_MUTABLE;
}

static int explain_memory(const struct folio_list *list)
{
        return error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for a list of over %zu names", list->n_entries);
}

static int collect_slot(struct folio_list *list, bool may_wait, uint32_t slot)
{
        size_t n_inline = MIN(list->prefix.n_bytes, (size_t)LAYOUT_SLOT_KEY_BYTES);

        /* One that never holds still is being changed all the time: the events tell of it. */
        for (unsigned i = 0; i < LIST_SLOT_TRIES_MAX; i++) {
                char key[FOLIO_KEY_BYTES_MAX + 1];
                LayoutSlot copy;
                int r = settle_read_slot(list->client, list->space, slot, may_wait, &copy);

                if (r != 1)
                        return r;
                if (!is_named(&copy) || copy.key_bytes < list->prefix.n_bytes ||
                    memcmp(copy.key, list->prefix.bytes, n_inline) != 0)
                        return 0;
                if (lookup_read_texts(list->space, slot, &copy, key, NULL, NULL))
                        return collect(list, (const uint8_t *)key, copy.key_bytes) ? 0 : explain_memory(list);
                (void)sched_yield();
        }
        return 0;
}

/* 0, SETTLE_ASK, or an error with the sentence. */
static int collect_slots(struct folio_list *list, bool may_wait)
{
        uint32_t n_slots = lookup_n_slots(list->space);

        for (uint32_t slot = 0; slot < n_slots; slot++) {
                int r = collect_slot(list, may_wait, slot);

                if (r != 0)
                        return r;
        }
        return 0;
}

enum { LIST_DONE = 1, LIST_LAPPED = 3 }; /* beside SETTLE_ASK */

/* What has been given a name since event @sequence. DONE, LAPPED, or an error with the sentence. */
static int collect_events(struct folio_list *list, uint64_t sequence)
{
        uint64_t newest = lookup_newest_event(list->space);

        while (sequence < newest) {
                LayoutEvent event;
                uint64_t oldest;

                switch (lookup_read_event(list->space, sequence + 1, &event, &oldest)) {
                case LOOKUP_EVENT:
                        break;
                case LOOKUP_EVENT_NONE:
                        return LIST_DONE;
                case LOOKUP_EVENT_LAPPED:
                        return LIST_LAPPED;
                }
                if ((event.type == FOLIO_EVENT_SEALED || event.type == FOLIO_EVENT_REPLACED) &&
                    !collect(list, event.key, event.key_bytes))
                        return explain_memory(list);
                sequence++;
        }
        return LIST_DONE;
}

/* --- sorting ---------------------------------------------------------------------------------------------------------------------------- */

static int compare_keys(const uint8_t *a, const uint8_t *b)
{
        int order = memcmp(a + 1, b + 1, MIN(a[0], b[0]));

        return order ? order : (int)a[0] - (int)b[0];
}

static int compare(const void *a, const void *b, void *keys)
{
        const ListEntry *x = a, *y = b;

        if (x->head != y->head)
                return x->head < y->head ? -1 : 1;
        return compare_keys((const uint8_t *)keys + x->offset, (const uint8_t *)keys + y->offset);
}

static void sort(struct folio_list *list)
{
        size_t n = 0;

        if (list->n_entries == 0)
                return;
        qsort_r(list->entries, list->n_entries, sizeof(*list->entries), compare, list->keys);
        for (size_t i = 1; i < list->n_entries; i++)
                if (compare(&list->entries[n], &list->entries[i], list->keys) != 0)
                        list->entries[++n] = list->entries[i];
        list->n_entries = n + 1;
}

/* --- public ----------------------------------------------------------------------------------------------------------------------------- */

_public_ void folio_list_close(struct folio_list *list)
{
        if (!list)
                return;
        free(list->entries);
        free(list->keys);
        client_release_user(list->client);
        free(list);
}

typedef struct ListOp {
        Op op;
        struct folio_list **ret;
} ListOp;

/* 0, SETTLE_ASK, or an error with the sentence. */
static int list_new(Client *client, Space *space, Key prefix, bool may_wait, struct folio_list **ret)
{
        struct folio_list *list = calloc(1, sizeof(*list));
        int r = LIST_LAPPED;

        /* What there is now is with the next foliod; where none comes it is what there was. */
        if (!resume_is_lit(resume_beacon(client)) && resume_check(client) == RESUME_GAP) {
                if (!may_wait) {
                        free(list);
                        return SETTLE_ASK;
                }
                (void)resume_wait(client);
        }
        if (!list)
                return error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for a list");
        client_add_user(client);
        list->client = client;
        list->space = space;
        memcpy(list->prefix_bytes, prefix.bytes, prefix.n_bytes);
        list->prefix = (Key){ list->prefix_bytes, prefix.n_bytes };
        /* Each round adds to what is there: even if we are lapped every time, only what is put in the last one can be missed. */
        for (unsigned i = 0; r == LIST_LAPPED && i < LIST_ROUNDS_MAX; i++) {
                uint64_t sequence = lookup_newest_event(space);
                unsigned count = resume_count(client);

                r = collect_slots(list, may_wait);
                if (r == 0)
                        r = collect_events(list, sequence);
                /* Some of it may be of two indexes at once, and no name at all. */
                if (r == LIST_DONE && !resume_is_same(client, count)) {
                        list->n_entries = 0;
                        list->keys_bytes = 0;
                        r = LIST_LAPPED;
                }
                sort(list);
        }
        if (r < 0 || r == SETTLE_ASK) {
                folio_list_close(list);
                return r;
        }
        *ret = list;
        return 0;
}

static void list_opened(Op *op)
{
        int r = 0;

        if (list_check_readable(op))
                r = list_new(op->client, op->space, op->key, op->is_waited, CONTAINER_OF(op, ListOp, op)->ret);
        if (r == SETTLE_ASK) {
                settle_ask(op, list_opened);
                return;
        }
        op_fail_as_thread(op, r);
        op_complete(op);
}

/* Whatever this client has asked for before. */
static void list_catch_up(Op *op)
{
        if (op->error)
                list_opened(op);
        else
                order_step(op, 0, list_opened);
}

static void list_begin(Op *op)
{
        list_open_prefix(op, list_catch_up);
}

static int list_init_op(ListOp *list, Client *client, const char *prefix, struct folio_list **ret)
{
        int r = client_check(client);

        if (r == 0 && !ret)
                r = error_set(FOLIO_E_INVALID, "there is no place for the list");
        if (r < 0)
                return r;
        op_init(&list->op, client);
        list->ret = ret;
        (void)list_set_prefix(&list->op, prefix);
        return 0;
}

_public_ int folio_list_open(struct folio_client *client, const char *prefix, struct folio_list **ret)
{
        ListOp list;
        int r = list_init_op(&list, client, prefix, ret);

        return r < 0 ? r : call_wait(&list.op, list_begin);
}

_public_ int folio_list_open_async(struct folio_client *client, const char *prefix, struct folio_list **ret,
                                   folio_done_fn done, void *userdata)
{
        ListOp list;
        int r = list_init_op(&list, client, prefix, ret);

        return r < 0 ? r : call_async(&list.op, sizeof(list), list_begin, done, userdata);
}

_public_ int folio_list_next(struct folio_list *list, struct folio_stat *entries, size_t n_entries)
{
        size_t struct_bytes, n = 0;

        if (!list || !entries || n_entries == 0 || entries->struct_bytes == 0)
                return error_set(FOLIO_E_INVALID, "a list, and room for one entry with struct_bytes set, are wanted");
        struct_bytes = entries->struct_bytes;
        n_entries = MIN(n_entries, (size_t)INT32_MAX);
        /* What has been deleted here is left out. Where the daemon does not answer any more, the index is as it is. */
        if (forked_is_mine(list->client->fork_mark))
                (void)order_catch_up(list->client, list->space, (Key){ NULL, 0 });
        while (n < n_entries && list->next < list->n_entries) {
                const uint8_t *key = list->keys + list->entries[list->next].offset;
                struct folio_stat *entry = (struct folio_stat *)(void *)((uint8_t *)entries + n * struct_bytes);
                int r = stat_look(list->client, list->space, (Key){ (const char *)key + 1, key[0] }, "", true, entry,
                                  struct_bytes);

                /* Nobody can tell yet whether it is there: the next call begins with it. */
                if (r == FOLIO_E_TIMEOUT)
                        return n > 0 ? (int)n : r;
                list->next++;
                n += r == 0;
        }
        return (int)n;
}
