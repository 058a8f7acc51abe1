/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls on a handle that reach its bytes: mapping them, and copying them out. What is mapped already, or can be
 * from here, is an answer at once; for the rest the region is asked for.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/cleanup.h"
#include "client/call.h"
#include "client/made.h"
#include "client/read.h"
#include "client/view.h"

/* --- mapping ---------------------------------------------------------------------------------------------------------------------------- */

#define MAP_FLAGS (FOLIO_GET_WRITABLE | FOLIO_GET_POPULATE | FOLIO_MAP_PRIVATE)

/*
 * So much of a new object's reserved memory is faulted in when its creator maps it: who maps it writes most of it, and by one
 * call a page of 4 KiB costs 0.9 us instead of the 1.5 us of a fault (whoever writes less than three in five loses; of pages of 2 MiB there
 * are 32 to fault in, whose cost is nothing). Bounded, as the caller waits for it: 15 ms.
 */
#define MAP_FRESH_BYTES_MAX (64 * MIB)

typedef struct MapOp {
        Op op;
        Object *object;
        uint32_t flags;
} MapOp;

/* With the object's lock. Through the descriptor that its creator has. 1: mapped; 0: there is none; an error. */
static int map_own(Object *object, bool populate)
{
        Mapping *mapping;
        int fd, r;

        if (object->fd < 0)
                return 0;
        if (object->region_bytes == 0)
                return error_set(FOLIO_E_PROTOCOL, "foliod has not said how large the region is");
        fd = fcntl(object->fd, F_DUPFD_CLOEXEC, 3);
        if (fd < 0)
                return error_set(error_from_errno(-errno), "no descriptor left to map the object: %s", strerror(errno));
        r = maps_add(object->client->maps, object->region_id, fd, object->region_bytes, true, populate, &mapping);
        if (r != 0)
                return object_explain_mapping(r, object->region_bytes);
        if (!object_attach(object, mapping))
                return FOLIO_E_PROTOCOL;
        if (!populate && !object->is_mutable && !object->is_sparse)
                windows_populate(mapping->data + object->offset_bytes,
                                 (size_t)MIN(object->size_bytes, MAP_FRESH_BYTES_MAX), true);
        return 1;
}

static int map_write_now(Object *object, bool populate)
{
        int r;

        switch ((ObjectKind)atomic_load(&object->kind)) {
        case OBJECT_READER:
                return error_set(FOLIO_E_STATE, "the object is for reading: it is sealed, or was not got with FOLIO_GET_WRITABLE");
        case OBJECT_ENDED:
                return error_set(FOLIO_E_STATE, "a seal of the object has begun: it can only be sealed again, or aborted");
        case OBJECT_STREAM:
                return error_set(FOLIO_E_UNSUPPORTED, "a streamed object has no memory to map: folio_object_write() it");
        case OBJECT_PIPED:
                return error_set(FOLIO_E_STATE, "a seal of the object has begun: it can only be sealed again, or aborted");
        case OBJECT_LEASED:
                made_prepare_all(object);
                return 1;
        case OBJECT_STAGED:
                return 1;
        case OBJECT_FILLED:
        case OBJECT_MUTABLE:
                break;
        }
        if (object->capacity_bytes == 0 || atomic_load(&object->writing))
                return 1;
        (void)pthread_mutex_lock(&object->lock);
        r = map_own(object, populate);
        (void)pthread_mutex_unlock(&object->lock);
        return r == 0 ? object_attach_mapped(object, true) : r;
}

static int map_read_now(Object *object)
{
        if (object_is_unsealed(object))
                return error_set(FOLIO_E_STATE, "the object is not sealed yet: folio_object_map_write() has its memory");
        if (object_peek(object))
                return 1;
        if (!object->is_pinned && !object->space->shared)
                return error_set(FOLIO_E_ACCESS, "this user may not read in namespace %s", object->space->name);
        return object_attach_mapped(object, false);
}

/* 1: it is mapped; 0: its region must be asked for; an error. */
static int map_now(Object *object, uint32_t flags)
{
        if (flags & FOLIO_MAP_PRIVATE)
                return view_now(object);
        return flags & FOLIO_GET_WRITABLE ? map_write_now(object, flags & FOLIO_GET_POPULATE) : map_read_now(object);
}

static int map_add_region(MapOp *map, int consume_fd)
{
        const ProtoItemReply *item = &map->op.item;

        if (map->flags & FOLIO_MAP_PRIVATE)
                return view_add_region(map->object, item, consume_fd, map->flags & FOLIO_GET_POPULATE);
        return object_add_region(map->object, item, consume_fd, map->flags & FOLIO_GET_WRITABLE,
                                 map->flags & FOLIO_GET_POPULATE);
}

static void map_came(Op *op)
{
        MapOp *map = CONTAINER_OF(op, MapOp, op);

        if (op->error == 0)
                op_fail_as_thread(op, map_add_region(map, steal_fd(&op->fd)));
        object_unref(map->object);
        op_complete(op);
}

static void map_begin(Op *op)
{
        MapOp *map = CONTAINER_OF(op, MapOp, op);
        ProtoItem item;
        int r = map_now(map->object, map->flags);

        if (r != 0) {
                op_fail_as_thread(op, r);
                op_complete(op);
                return;
        }
        (void)object_ref(map->object);
        op->space = map->object->space;
        item = object_region_item(map->object, map->flags & FOLIO_GET_WRITABLE);
        op_send_item(op, VERB_REGION, &item, map_came);
}

static int map_wait(Object *object, uint32_t flags)
{
        MapOp map = { .object = object, .flags = flags };
        int r = map_now(object, flags);

        if (r != 0)
                return r < 0 ? r : 0;
        op_init(&map.op, object->client);
        return call_wait(&map.op, map_begin);
}

_public_ int folio_object_map_write(struct folio_object *handle, void **ret)
{
        int r;
        Object *object = object_find(handle, &r);
        const Mapping *mapping;
        void *data = NULL;

        if (!object)
                return r;
        if (!ret)
                return error_set(FOLIO_E_INVALID, "there is no place for the address");
        r = map_wait(object, FOLIO_GET_WRITABLE);
        if (r < 0)
                return r;
        /* A seal that another thread begins meanwhile takes both away: it says so with the lock first. */
        (void)pthread_mutex_lock(&object->lock);
        mapping = atomic_load(&object->writing);
        if (atomic_load(&object->kind) == OBJECT_STAGED || atomic_load(&object->kind) == OBJECT_LEASED)
                data = object->staged;
        if (!data && object->capacity_bytes == 0)
                data = object_empty_address();
        else if (!data && mapping)
                data = mapping->data + object->offset_bytes;
        (void)pthread_mutex_unlock(&object->lock);
        if (!data)
                return error_set(FOLIO_E_STATE, "a seal of the object has begun: it can only be sealed again, or aborted");
        *ret = data;
        return 0;
}

_public_ int folio_object_map_private(struct folio_object *handle, void **ret)
{
        int r;
        Object *object = object_find(handle, &r);

        if (!object)
                return r;
        if (!ret)
                return error_set(FOLIO_E_INVALID, "there is no place for the address");
        r = map_wait(object, FOLIO_MAP_PRIVATE);
        if (r == 0)
                *ret = view_data(object);
        return r;
}

_public_ const void *folio_object_data(struct folio_object *handle)
{
        int error;
        Object *object = object_find(handle, &error);
        const uint8_t *data;

        if (!object)
                return NULL;
        data = object_is_unsealed(object) ? NULL : object_peek(object);
        if (LIKELY(data))
                return data;
        return map_wait(object, 0) == 0 ? object_peek(object) : NULL;
}

_public_ int folio_object_map_async(struct folio_object *handle, uint32_t flags, folio_done_fn done, void *userdata)
{
        int r;
        MapOp map = { .object = object_find(handle, &r), .flags = flags };

        if (!map.object)
                return r;
        if (flags & ~MAP_FLAGS)
                return error_set(FOLIO_E_INVALID, "unknown flags 0x%x for a mapping", flags & ~MAP_FLAGS);
        if (flags & FOLIO_MAP_PRIVATE && flags & FOLIO_GET_WRITABLE)
                return error_set(FOLIO_E_INVALID, "a mapping is private or writes the object, not both");
        op_init(&map.op, map.object->client);
        return call_async(&map.op, sizeof(map), map_begin, done, userdata);
}

/* --- reading ---------------------------------------------------------------------------------------------------------------------------- */

typedef struct ReadOp {
        Op op;
        Object *object;
        uint64_t offset_bytes;
        void *buffer;
        size_t n_bytes;
} ReadOp;

static int read_now(Object *object, uint64_t offset_bytes, void *buffer, size_t n_bytes)
{
        int r = object_check_readable(object, offset_bytes, n_bytes);

        return r < 0 ? r : object_read_now(object, offset_bytes, buffer, n_bytes);
}

static void read_came(Op *op)
{
        ReadOp *read = CONTAINER_OF(op, ReadOp, op);

        if (op->error == 0)
                op_fail_as_thread(op, object_read_region(read->object, &op->item, steal_fd(&op->fd), read->offset_bytes,
                                                         read->buffer, read->n_bytes));
        object_unref(read->object);
        op_complete(op);
}

static void read_begin(Op *op)
{
        ReadOp *read = CONTAINER_OF(op, ReadOp, op);
        ProtoItem item;
        int r = read_now(read->object, read->offset_bytes, read->buffer, read->n_bytes);

        if (r != 0) {
                op_fail_as_thread(op, r);
                op_complete(op);
                return;
        }
        (void)object_ref(read->object);
        op->space = read->object->space;
        item = object_region_item(read->object, false);
        op_send_item(op, VERB_REGION, &item, read_came);
}

_public_ int folio_object_read(struct folio_object *handle, uint64_t offset_bytes, void *buffer, size_t n_bytes)
{
        int r;
        Object *object = object_find(handle, &r);

        if (!object)
                return r;
        if (!buffer && n_bytes > 0)
                return error_set(FOLIO_E_INVALID, "the buffer is NULL");
        r = read_now(object, offset_bytes, buffer, n_bytes);
        if (r == 0) {
                ReadOp read = { .object = object, .offset_bytes = offset_bytes, .buffer = buffer, .n_bytes = n_bytes };

                op_init(&read.op, object->client);
                r = call_wait(&read.op, read_begin);
        }
        return r < 0 ? r : 0;
}

_public_ int folio_object_read_async(struct folio_object *handle, uint64_t offset_bytes, void *buffer, size_t n_bytes,
                                     folio_done_fn done, void *userdata)
{
        int r;
        ReadOp read = {
                .object = object_find(handle, &r),
                .offset_bytes = offset_bytes,
                .buffer = buffer,
                .n_bytes = n_bytes,
        };

        if (!read.object)
                return r;
        if (!buffer && n_bytes > 0)
                return error_set(FOLIO_E_INVALID, "the buffer is NULL");
        op_init(&read.op, read.object->client);
        return call_async(&read.op, sizeof(read), read_begin, done, userdata);
}
