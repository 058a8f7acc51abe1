/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public structs as release 0.1 laid them out on 64-bit machines, checked by the compiler. Programs built against 0.1
 * have these numbers in them, so no line here is ever changed: a release that appends fields gets a file of its own
 * beside this one, and only a struct that begins with struct_bytes (or is known to no caller) may grow at all.
 *
 * Numbers that programs have compiled in, errors and flags, are checked too.
 */
#include <assert.h>

#include <folio/folio.h>

#define AT(type, field, offset) static_assert(offsetof(struct type, field) == (offset), #type "." #field)
/* What may grow is at least as large as it was; what arrays are made of is exactly as large. */
#define AT_LEAST(type, size) static_assert(sizeof(struct type) >= (size), #type)
#define EXACTLY(type, size) static_assert(sizeof(struct type) == (size), #type)

#if UINTPTR_MAX == UINT64_MAX
AT_LEAST(folio_open_options, 40);
AT(folio_open_options, struct_bytes, 0);
AT(folio_open_options, address, 8);
AT(folio_open_options, client_name, 16);
AT(folio_open_options, flags, 24);
AT(folio_open_options, timeout_ms, 28);
AT(folio_open_options, mapping_bytes_max, 32);

AT_LEAST(folio_create_options, 56);
AT(folio_create_options, struct_bytes, 0);
AT(folio_create_options, flags, 8);
AT(folio_create_options, lifetime, 12);
AT(folio_create_options, expires_ns, 16);
AT(folio_create_options, capacity_bytes, 24);
AT(folio_create_options, metadata, 32);
AT(folio_create_options, metadata_bytes, 40);
AT(folio_create_options, content_type, 48);

AT_LEAST(folio_stat, 680);
AT(folio_stat, struct_bytes, 0);
AT(folio_stat, generation, 8);
AT(folio_stat, size_bytes, 16);
AT(folio_stat, capacity_bytes, 24);
AT(folio_stat, allocated_bytes, 32);
AT(folio_stat, huge_bytes, 40);
AT(folio_stat, created_ns, 48);
AT(folio_stat, changed_ns, 56);
AT(folio_stat, expires_ns, 64);
AT(folio_stat, state, 72);
AT(folio_stat, lifetime, 76);
AT(folio_stat, protection, 80);
AT(folio_stat, backing, 84);
AT(folio_stat, placement, 88);
AT(folio_stat, owner_uid, 92);
AT(folio_stat, has_holes, 96);
AT(folio_stat, metadata_bytes, 100);
AT(folio_stat, content_type, 104);
AT(folio_stat, name, 360);

AT_LEAST(folio_holder, 96);
AT(folio_holder, struct_bytes, 0);
AT(folio_holder, pid, 8);
AT(folio_holder, uid, 12);
AT(folio_holder, n_pins, 16);
AT(folio_holder, connected_ns, 24);
AT(folio_holder, comm, 32);

EXACTLY(folio_put_item, 40);
AT(folio_put_item, name, 0);
AT(folio_put_item, data, 8);
AT(folio_put_item, size_bytes, 16);
AT(folio_put_item, options, 24);
AT(folio_put_item, error, 32);

EXACTLY(folio_get_item, 24);
AT(folio_get_item, name, 0);
AT(folio_get_item, object, 8);
AT(folio_get_item, error, 16);

EXACTLY(folio_stat_item, 24);
AT(folio_stat_item, name, 0);
AT(folio_stat_item, stat, 8);
AT(folio_stat_item, error, 16);

EXACTLY(folio_read_item, 48);
AT(folio_read_item, name, 0);
AT(folio_read_item, object, 8);
AT(folio_read_item, offset_bytes, 16);
AT(folio_read_item, buffer, 24);
AT(folio_read_item, n_bytes, 32);
AT(folio_read_item, error, 40);

EXACTLY(folio_delete_item, 16);
AT(folio_delete_item, name, 0);
AT(folio_delete_item, flags, 8);
AT(folio_delete_item, error, 12);

AT_LEAST(folio_event, 376);
AT(folio_event, struct_bytes, 0);
AT(folio_event, sequence, 8);
AT(folio_event, generation, 16);
AT(folio_event, size_bytes, 24);
AT(folio_event, time_ns, 32);
AT(folio_event, n_missed, 40);
AT(folio_event, type, 48);
AT(folio_event, name, 52);

AT_LEAST(folio_namespace, 184);
AT(folio_namespace, struct_bytes, 0);
AT(folio_namespace, fields, 8);
AT(folio_namespace, owner_uid, 12);
AT(folio_namespace, owner_gid, 16);
AT(folio_namespace, mode, 20);
AT(folio_namespace, quota_bytes, 24);
AT(folio_namespace, quota_objects, 32);
AT(folio_namespace, objects_max, 40);
AT(folio_namespace, backing, 48);
AT(folio_namespace, huge, 52);
AT(folio_namespace, rights, 56);
AT(folio_namespace, used_bytes, 64);
AT(folio_namespace, n_objects, 72);
AT(folio_namespace, held_bytes, 80);
AT(folio_namespace, n_held, 88);
AT(folio_namespace, unsealed_bytes, 96);
AT(folio_namespace, n_unsealed, 104);
AT(folio_namespace, index_bytes, 112);
AT(folio_namespace, name, 120);

AT_LEAST(folio_status, 208);
AT(folio_status, struct_bytes, 0);
AT(folio_status, value, 8);
AT(folio_status, name, 16);
AT(folio_status, text, 80);
#endif

#define IS(name, value) static_assert((name) == (value), #name)

IS(FOLIO_NAMESPACE_BYTES_MAX, 63);
IS(FOLIO_KEY_BYTES_MAX, 255);
IS(FOLIO_NAME_BYTES_MAX, 319);
IS(FOLIO_METADATA_BYTES_MAX, 4096);
IS(FOLIO_CONTENT_TYPE_BYTES_MAX, 255);
IS(FOLIO_OBJECT_BYTES_MAX, INT64_C(70368744177664));
IS(FOLIO_TIMEOUT_FOREVER, -1);
IS(FOLIO_E_NOT_FOUND, -2);
IS(FOLIO_E_DELETED, -43);
IS(FOLIO_E_EVICTED, -116);
IS(FOLIO_E_EXPIRED, -62);
IS(FOLIO_E_WRITING, -16);
IS(FOLIO_E_WRITER_DIED, -130);
IS(FOLIO_E_EXISTS, -17);
IS(FOLIO_E_ACCESS, -13);
IS(FOLIO_E_FULL, -28);
IS(FOLIO_E_TOO_LARGE, -27);
IS(FOLIO_E_LIMIT, -122);
IS(FOLIO_E_DAEMON_GONE, -107);
IS(FOLIO_E_PROTOCOL, -71);
IS(FOLIO_E_TIMEOUT, -110);
IS(FOLIO_E_RANGE, -34);
IS(FOLIO_E_INVALID, -22);
IS(FOLIO_E_STATE, -1);
IS(FOLIO_E_UNSUPPORTED, -95);
IS(FOLIO_E_FORKED, -10);
IS(FOLIO_E_CANCELLED, -125);
IS(FOLIO_E_NO_MEMORY, -12);
IS(FOLIO_E_IO, -5);
IS(FOLIO_REPLACE, 1);
IS(FOLIO_MUTABLE, 2);
IS(FOLIO_SPARSE, 4);
IS(FOLIO_OWN_REGION, 8);
IS(FOLIO_STREAM, 16);
IS(FOLIO_GET_UNMAPPED, 1);
IS(FOLIO_GET_WRITABLE, 2);
IS(FOLIO_GET_POPULATE, 4);
IS(FOLIO_IF_EXISTS, 1);
IS(FOLIO_OPEN_SPAWN, 1);
IS(FOLIO_OPEN_DUMPABLE, 2);
IS(FOLIO_RIGHT_READ, 4);
IS(FOLIO_RIGHT_WRITE, 2);
IS(FOLIO_RIGHT_ADMIN, 1);
IS(FOLIO_STATE_WRITING, 1);
IS(FOLIO_STATE_SEALED, 2);
IS(FOLIO_STATE_MUTABLE, 3);
IS(FOLIO_UNTIL_DELETED, 0);
IS(FOLIO_WITH_CREATOR, 1);
IS(FOLIO_UNTIL_TIME, 2);
IS(FOLIO_PROTECTION_NONE, 0);
IS(FOLIO_PROTECTION_KERNEL, 1);
IS(FOLIO_PROTECTION_MODE, 2);
IS(FOLIO_PROTECTION_TRUSTED, 3);
IS(FOLIO_BACKING_MEMFD, 1);
IS(FOLIO_BACKING_TMPFS, 2);
IS(FOLIO_BACKING_HUGETLB, 3);
IS(FOLIO_PLACEMENT_PACKED, 1);
IS(FOLIO_PLACEMENT_OWN, 2);
IS(FOLIO_HUGE_AUTO, 0);
IS(FOLIO_HUGE_ALWAYS, 1);
IS(FOLIO_HUGE_NEVER, 2);
IS(FOLIO_EVENT_SEALED, 1);
IS(FOLIO_EVENT_REPLACED, 2);
IS(FOLIO_EVENT_DELETED, 3);
IS(FOLIO_EVENT_EVICTED, 4);
IS(FOLIO_EVENT_EXPIRED, 5);
IS(FOLIO_EVENT_MISSED, 6);

int main(void)
{
        return 0;
}
