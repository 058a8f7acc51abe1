/* SPDX-License-Identifier: Apache-2.0 */
/* See view.h. Of two threads that make it at once the loser's goes. */
#include "client/view.h"

#include "base/checked.h"
#include "base/cleanup.h"
#include "client/read.h"

void *view_data(const Object *object)
{
        const ObjectExtra *extra = atomic_load_explicit(&object->extra, memory_order_acquire);
        uint8_t *data = extra ? atomic_load_explicit(&extra->private_data, memory_order_acquire) : NULL;

        if (object->size_bytes == 0)
                return object_empty_address();
        return data && object->placement != FOLIO_PLACEMENT_PACKED && !object->staged ? data + object->offset_bytes : data;
}

static int view_attach(Object *object, void *data, uint64_t n_bytes)
{
        ObjectExtra *extra = object_get_extra(object);
        void *none = NULL;

        if (!extra) {
                maps_unmap(data, (size_t)n_bytes);
                return error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for a view of the object");
        }
        (void)pthread_mutex_lock(&object->lock);
        if (atomic_compare_exchange_strong(&extra->private_data, &none, data)) {
                extra->private_bytes = (size_t)n_bytes;
                data = NULL;
        }
        (void)pthread_mutex_unlock(&object->lock);
        if (data)
                maps_unmap(data, (size_t)n_bytes);
        return 0;
}

/* From what is mapped, or by what REGION brought where @item is not NULL. 0 or an error. */
static int view_copy(Object *object, const ProtoItemReply *item, int consume_fd)
{
        _cleanup_(cleanup_fd) int fd = consume_fd;
        void *data;
        int r = maps_map_private(object->client->maps, -1, object->size_bytes, &data);

        if (r != 0)
                return object_explain_mapping(r, object->size_bytes);
        if (item)
                r = object_read_region(object, item, steal_fd(&fd), 0, data, (size_t)object->size_bytes);
        else
                r = object_read_now(object, 0, data, (size_t)object->size_bytes);
        if (r >= 0)
                return view_attach(object, data, object->size_bytes);
        maps_unmap(data, (size_t)object->size_bytes);
        return r;
}

int view_now(Object *object)
{
        int r;

        if (object_is_unsealed(object))
                return error_set(FOLIO_E_STATE, "the object is not sealed yet, so there is nothing to make a view of");
        if (object->is_mutable)
                return error_set(FOLIO_E_STATE, "the object is mutable: a view of what others change would be neither theirs nor "
                                                "a copy; read it into memory of your own");
        if (view_data(object))
                return 1;
        if (object->staged) {
                r = view_copy(object, NULL, -1);
                return r < 0 ? r : 1;
        }
        if (!object->is_pinned)
                return error_set(FOLIO_E_ACCESS, "this user may not read in namespace %s", object->space->name);
        if (object->placement != FOLIO_PLACEMENT_PACKED)
                return 0;
        r = object_attach_mapped(object, false);
        if (r <= 0)
                return r;
        r = view_copy(object, NULL, -1);
        return r < 0 ? r : 1;
}

int view_add_region(Object *object, const ProtoItemReply *item, int consume_fd, bool populate)
{
        _cleanup_(cleanup_fd) int fd = consume_fd;
        void *data;
        int r;

        if (fd < 0 || !checked_range(item->offset_bytes, object->size_bytes, item->region_bytes))
                return error_set(FOLIO_E_PROTOCOL, "foliod's answer lacks the region's descriptor, or it is too small");
        if (item->placement == FOLIO_PLACEMENT_PACKED)
                return view_copy(object, item, steal_fd(&fd));
        r = object_place(object, item);
        if (r < 0)
                return r;
        r = maps_map_private(object->client->maps, fd, item->region_bytes, &data);
        if (r != 0)
                return object_explain_mapping(r, item->region_bytes);
        if (populate)
                windows_populate(data, (size_t)item->region_bytes, false);
        return view_attach(object, data, item->region_bytes);
}
