/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stands behind a handle: which object, how it is held, and what is mapped of it. An object that is read has a
 * pin (where the namespace may be read) and at most one mapping for reading and one for writing, made when first needed. One that
 * is being written has, by its kind, staging memory, a descriptor, or neither; the daemon aborts it with the connection.
 */
#ifndef CLIENT_OBJECT_H
#define CLIENT_OBJECT_H

#include <pthread.h>

#include "client/lib/extents.h"
#include "client/lib/lookup.h"
#include "client/names.h"
#include "folio/object.h"

typedef enum ObjectKind {
        OBJECT_READER,               /* sealed, or a mutable one for reading */
        OBJECT_MUTABLE,              /* to be written at any time */
        OBJECT_STAGED,               /* being written, in staging memory */
        OBJECT_FILLED,               /* being written, in a region of its own */
        OBJECT_STREAM,               /* being written, through the daemon */
        OBJECT_ENDED,                /* a seal has begun: it can only be sealed again, or aborted */
        OBJECT_LEASED,               /* being written, in a lease */
        OBJECT_PIPED,                /* its seal is under way in the ring, and nobody has asked yet what came of it */
} ObjectKind;

/* What is known of ranges of an own region that read as zeros. Of a packed object nothing is to be known. */
typedef enum ObjectZeros {
        OBJECT_ZEROS_UNKNOWN,        /* nobody has looked yet */
        OBJECT_ZEROS_NONE,           /* all of it is to be read as data */
        OBJECT_ZEROS_LISTED,         /* sealed: in `extra` */
        OBJECT_ZEROS_HINTS,          /* mutable and sparse: in `extra`, as it was once; to be looked at each time */
} ObjectZeros;

/* What few objects need, made when the first of it is. Written with the object's lock. */
typedef struct ObjectExtra {
        Extents *_Atomic extents;    /* NULL: none listed; read with the lock, or where LISTED */
        uint64_t extents_ns;         /* HINTS: changed_ns of the slot that they are of; 0: none yet */
        uint32_t extents_block;      /* of the slot that they are of */
        atomic_int fd;               /* read-only, of the region, to read what should not be touched through a mapping; -1 */
        uint8_t *sealed_data;        /* a copy that nobody else can change, instead of a mapping; NULL: none */
        void *_Atomic private_data;  /* the copy-on-write view of it; NULL: none */
        size_t sealed_bytes;
        size_t private_bytes;        /* that are mapped, from before the object's first byte where it does not begin the region */
} ObjectExtra;

/* What an object needs that is made through the ring: see made.h. */
typedef struct Made Made;

typedef struct Object {
        atomic_uint n_references;    /* the handle's, and of a seal under way */
        Space *space;                /* borrowed: the client keeps it */
        atomic_int kind;             /* ObjectKind */
        atomic_bool is_pinned;       /* one thread may look while another seals */
        bool is_mutable;
        bool was_staged;             /* ENDED: `staged` is still to be sealed from */
        bool is_broken;              /* STREAM: a write has failed */
        bool is_streaming;           /* STREAM: an asynchronous write is under way */
        uint32_t slot;
        uint32_t placement;
        _Atomic uint64_t generation; /* another one from the seal on, where it replaces; others may be looking */
        uint64_t size_bytes;         /* of a mutable object: as it was when held */
        uint64_t capacity_bytes;     /* what its mapping must cover */
        uint64_t region_id;
        uint64_t region_bytes;       /* being written: of the region */
        uint64_t offset_bytes;       /* in the region */
        Mapping *_Atomic reading;
        Mapping *_Atomic writing;
        ObjectExtra *_Atomic extra;  /* NULL for nearly all */
        atomic_uchar zeros;          /* ObjectZeros */
        _Atomic uint32_t zeros_sequence; /* the slot's when that was found: of a sealed object more may be listed since */
        bool is_sparse;              /* made so: what is not written yet takes no memory */
        int fd;                      /* FILLED, MUTABLE: to write by; -1 */
        void *staged;                /* STAGED; LEASED: byte 0; a reader may have it too, where it has no pin */
        Made *made;                  /* NULL: not through the ring */
        uint8_t protection;          /* of one that was found: enum folio_protection */
        /* What an object has for life, through all that it stands for: all above is zeroed where it is used again. */
        Client *client;              /* a user of it */
        struct folio_object *handle; /* the last one, when it has ended: its place is ours; NULL: never had any */
        pthread_mutex_t lock;        /* of the slow things: mapping for writing, streaming, sealing */
} Object;

/*
 * Of a handle; NULL: error_set() has been told, *@ret_error is FOLIO_E_INVALID or FOLIO_E_FORKED, or why a seal that was
 * under way has failed.
 */
Object *object_find(struct folio_object *handle, int *ret_error);
/* The same of one whose seal may still be under way (PIPED). */
Object *object_find_piped(struct folio_object *handle, int *ret_error);

/* NULL: no memory. A user of the client. */
Object *object_new(Client *client, Space *space);
/* The same for one that lies in the packed region @region_id: one that was let go of, with that region mapped, if there is. */
Object *object_take(Client *client, Space *space, uint64_t region_id);
/* A handle of it, which takes the reference over; NULL: no memory. */
struct folio_object *object_give(Object *object);
Object *object_ref(Object *object);
/* The last one lets go of all of it: an unsealed one is aborted. NULL is legal. */
void object_unref(Object *object);
/* At the client's end: no object is kept for use again any more. */
void objects_close(Client *client);
/* The same in the caller's memory. */
void object_init(Object *object, Client *client, Space *space);
void object_deinit(Object *object);

/* For objects that are found: from the slot, as copied. */
void object_fill(Object *object, uint32_t slot, const LayoutSlot *copy);

/* Holds it; false: it has gone. */
bool object_pin(Object *object);
void object_unpin(Object *object);

/* Takes @mapping, with its reference. False: it does not cover what the object claims; the reference is given back. */
bool object_attach(Object *object, Mapping *mapping);

/* What is mapped already, of this client: attached where found. 1 yes, 0 no, FOLIO_E_PROTOCOL. */
int object_attach_mapped(Object *object, bool writable);

/* What a REGION answer brought: maps and attaches. 0 or an error, with the thread's sentence. */
int object_add_region(Object *object, const ProtoItemReply *item, int consume_fd, bool writable, bool populate);

/* The same with a descriptor that stays the caller's. FOLIO_E_LIMIT: it cannot be mapped, but may be read. */
int object_map_region(Object *object, const ProtoItemReply *item, int fd, bool writable, bool populate);

/* NULL: no memory. */
ObjectExtra *object_get_extra(Object *object);

/* Why maps_open() and its like failed, for the thread. Returns the error. */
int object_explain_mapping(int r, uint64_t n_bytes);

/* Blocking: asks for the region. 0 or an error, with the thread's sentence; the descriptor is the caller's. */
int object_ask_region(Object *object, bool writable, ProtoItemReply *ret_item, int *ret_fd);

/*
 * Where the daemon says it lies. Once it is mapped, or a descriptor of it is kept, that cannot be elsewhere any more:
 * what is there was checked by what was said then. 0 or FOLIO_E_PROTOCOL.
 */
int object_place(Object *object, const ProtoItemReply *item);

/* The item of a REGION request. */
ProtoItem object_region_item(const Object *object, bool writable);
ProtoItem object_slot_item(const Object *object);

/* Byte 0 of what is mapped for reading, or for both; NULL: nothing is. Of nothing there is an address too. */
const uint8_t *object_peek(const Object *object);
uint8_t *object_empty_address(void);

uint64_t object_size(const Object *object);

/* 0, or FOLIO_E_RANGE with the sentence. */
int object_check_range(const Object *object, uint64_t offset_bytes, uint64_t n_bytes);

/* Is it for writing, and how? 0, or FOLIO_E_STATE with the sentence. */
int object_check_writable(const Object *object, ObjectKind *ret);

/* Is it for reading now, there? 0, FOLIO_E_INVALID or FOLIO_E_RANGE with the sentence. */
int object_check_readable(Object *object, uint64_t offset_bytes, uint64_t n_bytes);

static inline bool object_is_unsealed(const Object *object)
{
        int kind = atomic_load_explicit(&object->kind, memory_order_acquire);

        return kind == OBJECT_STAGED || kind == OBJECT_FILLED || kind == OBJECT_STREAM || kind == OBJECT_ENDED ||
               kind == OBJECT_LEASED;
}

#endif
