/* SPDX-License-Identifier: Apache-2.0 */
/* See sealed.h. The copy is the handle's, and goes with it; what it was made from is let go of at once. */
#include "client/sealed.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/cleanup.h"
#include "client/read.h"

static bool is_protected(const Object *object)
{
        switch ((enum folio_protection)object->protection) {
        case FOLIO_PROTECTION_KERNEL:
        case FOLIO_PROTECTION_MODE:
                return true;
        case FOLIO_PROTECTION_NONE:
        case FOLIO_PROTECTION_TRUSTED:
                break;
        }
        return false;
}

/* Whole, from what is mapped, or can be. */
static int copy_whole(Object *object, void *data)
{
        _cleanup_(cleanup_fd) int fd = -1;
        ProtoItemReply item;
        int r = object_attach_mapped(object, false);

        if (r > 0)
                r = object_read_now(object, 0, data, (size_t)object->size_bytes);
        if (r != 0)
                return r < 0 ? r : 0;
        r = object_ask_region(object, false, &item, &fd);
        return r < 0 ? r : object_read_region(object, &item, steal_fd(&fd), 0, data, (size_t)object->size_bytes);
}

static void show_copy(Object *object, ObjectExtra *extra, void *data, size_t n_bytes)
{
        Mapping *reading = atomic_exchange(&object->reading, NULL);

        if (reading)
                maps_unref(object->client->maps, reading, false);
        extra->sealed_data = data;
        extra->sealed_bytes = n_bytes;
        object->staged = data;
}

int sealed_make(Object *object)
{
        size_t n_bytes = (size_t)object->size_bytes;
        ObjectExtra *extra;
        void *data;
        int r;

        if (object->is_mutable)
                return error_set(FOLIO_E_STATE, "the object is mutable: there are no bytes of it that nobody can change");
        if (n_bytes == 0 || is_protected(object))
                return 0;
        extra = object_get_extra(object);
        if (!extra)
                return error_set(FOLIO_E_NO_MEMORY, "this process has no memory left for a copy of the object");
        if (extra->sealed_data)
                return 0;
        r = maps_map_private(object->client->maps, -1, n_bytes, &data);
        if (r != 0)
                return object_explain_mapping(r, n_bytes);
        r = copy_whole(object, data);
        if (r == 0 && mprotect(data, n_bytes, PROT_READ) < 0)
                r = error_set(error_from_errno(-errno), "the copy of the object cannot be protected: %s", strerror(errno));
        if (r < 0) {
                maps_unmap(data, n_bytes);
                return r;
        }
        show_copy(object, extra, data, n_bytes);
        return 0;
}
