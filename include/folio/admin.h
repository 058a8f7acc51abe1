/* SPDX-License-Identifier: Apache-2.0 */
/* For those who run a store: namespaces, and what the daemon knows of itself. */
#ifndef FOLIO_ADMIN_H
#define FOLIO_ADMIN_H

#include <folio/client.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A namespace: its settings, and facts about it. Set `struct_bytes` before the call. In folio_namespace_set() only the
 * fields named in `fields` count.
 */
struct folio_namespace {
        size_t struct_bytes;
        uint32_t fields;             /* FOLIO_NAMESPACE_FIELD_*: which of the settings below are given */
        uint32_t owner_uid;
        uint32_t owner_gid;
        uint32_t mode;               /* FOLIO_RIGHT_* thrice, as a file mode: 0760 */
        uint64_t quota_bytes;        /* 0: no quota but the store's budget */
        uint64_t quota_objects;      /* 0: objects_max */
        uint64_t objects_max;        /* room in the index; fixed when the namespace is made */
        uint32_t backing;            /* enum folio_backing, of regions of their own; fixed when the namespace is made */
        uint32_t huge;               /* enum folio_huge */
        /* Facts, never settings. */
        uint32_t rights;             /* FOLIO_RIGHT_* of the asking client */
        uint64_t used_bytes;         /* charged, held ones too */
        uint64_t n_objects;          /* that have a name */
        uint64_t held_bytes;         /* of objects deleted or replaced that somebody still holds */
        uint64_t n_held;
        uint64_t unsealed_bytes;     /* of objects being written */
        uint64_t n_unsealed;
        uint64_t index_bytes;        /* memory of the index itself */
        char name[FOLIO_NAMESPACE_BYTES_MAX + 1];
        uint32_t writers;            /* enum folio_writers; a setting, fixed when the namespace is made */
        uint64_t leased_bytes;       /* a fact: memory of the regions that clients place objects in, whole */
};

#define FOLIO_NAMESPACE_FIELD_OWNER (1u << 0)
#define FOLIO_NAMESPACE_FIELD_GROUP (1u << 1)
#define FOLIO_NAMESPACE_FIELD_MODE (1u << 2)
#define FOLIO_NAMESPACE_FIELD_QUOTA_BYTES (1u << 3)
#define FOLIO_NAMESPACE_FIELD_QUOTA_OBJECTS (1u << 4)
#define FOLIO_NAMESPACE_FIELD_OBJECTS_MAX (1u << 5)
#define FOLIO_NAMESPACE_FIELD_BACKING (1u << 6)
#define FOLIO_NAMESPACE_FIELD_HUGE (1u << 7)
#define FOLIO_NAMESPACE_FIELD_WRITERS (1u << 8)

/**
 * folio_namespace_add() - make a namespace
 * folio_namespace_set() - change its settings
 * folio_namespace_remove() - remove it, and every object in it
 * @client:   borrowed
 * @settings: name, and the settings named in `fields`; borrowed for the call
 *
 * Adding is for root and the uid foliod runs as; setting and removing for who has the admin right in it. `default`
 * cannot be removed.
 *
 * Lifetime:  a namespace lives until it is removed, or the store ends.
 * Blocking:  one round trip.
 * Threads:   any.
 * Return:    0; FOLIO_E_EXISTS; FOLIO_E_NOT_FOUND; FOLIO_E_ACCESS; FOLIO_E_LIMIT; FOLIO_E_INVALID a bad name, or a
 *            setting that is fixed; FOLIO_E_UNSUPPORTED that backing is not to be had here; FOLIO_E_DAEMON_GONE; FOLIO_E_TIMEOUT;
 *            FOLIO_E_PROTOCOL; FOLIO_E_FORKED; FOLIO_E_NO_MEMORY; FOLIO_E_IO.
 * Since:     0.1
 */
int folio_namespace_add(struct folio_client *client, const struct folio_namespace *settings);
int folio_namespace_set(struct folio_client *client, const struct folio_namespace *settings);
int folio_namespace_remove(struct folio_client *client, const char *name);
int folio_namespace_add_async(struct folio_client *client, const struct folio_namespace *settings, folio_done_fn done,
                              void *userdata);
int folio_namespace_set_async(struct folio_client *client, const struct folio_namespace *settings, folio_done_fn done,
                              void *userdata);
int folio_namespace_remove_async(struct folio_client *client, const char *name, folio_done_fn done, void *userdata);

/**
 * folio_namespace_list() - namespaces, sorted by name
 * @client:    borrowed
 * @after:     begin behind this name; NULL or "": at the beginning
 * @entries:   an array of structs, struct_bytes set in the first
 * @n_entries: how many fit
 *
 * Lifetime:  -
 * Blocking:  one round trip.
 * Threads:   any.
 * Return:    how many were filled, 0 when none follows; FOLIO_E_INVALID; FOLIO_E_DAEMON_GONE; FOLIO_E_TIMEOUT;
 *            FOLIO_E_PROTOCOL; FOLIO_E_FORKED; FOLIO_E_NO_MEMORY.
 * Since:     0.1
 */
int folio_namespace_list(struct folio_client *client, const char *after, struct folio_namespace *entries, size_t n_entries);
int folio_namespace_list_async(struct folio_client *client, const char *after, struct folio_namespace *entries,
                               size_t n_entries, folio_done_fn done, void *userdata);

/* A status: one fact of the daemon, as `memory.budget_bytes`, 1073741824. */
struct folio_status {
        size_t struct_bytes;
        uint64_t value;
        char name[64];
        char text[128];              /* for facts that are words: `huge.policy`, `collapse`; then value is 0 */
};

/**
 * folio_status_get() - what the daemon knows of itself
 * @client:    borrowed
 * @entries:   an array of structs, struct_bytes set in the first
 * @n_entries: how many fit
 *
 * Lifetime:  -
 * Blocking:  one round trip.
 * Threads:   any.
 * Return:    how many there are, which can be more than were filled; FOLIO_E_INVALID; FOLIO_E_DAEMON_GONE;
 *            FOLIO_E_TIMEOUT; FOLIO_E_PROTOCOL; FOLIO_E_FORKED; FOLIO_E_NO_MEMORY.
 * Since:     0.1
 */
int folio_status_get(struct folio_client *client, struct folio_status *entries, size_t n_entries);
int folio_status_get_async(struct folio_client *client, struct folio_status *entries, size_t n_entries,
                           folio_done_fn done, void *userdata);

#ifdef __cplusplus
}
#endif

#endif
