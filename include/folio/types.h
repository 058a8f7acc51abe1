/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers and names that a user of libfolio meets: limits, flags, states, errors. Nothing here says how it is done.
 *
 * Names. An object is called `namespace:key`, a NUL-terminated string. The first colon ends the namespace (1 to 63
 * of a-z 0-9 . _ -); what follows is the key, 1 to 255 bytes of anything but NUL. Without a colon the namespace is
 * `default`. A key of the default namespace that holds a colon is written `default:the:key`.
 *
 * Errors. Functions return 0 (or a positive answer, where they say so) or one of the negative numbers below, and set
 * nothing else. folio_strerror_full() has the sentence with the numbers.
 */
#ifndef FOLIO_TYPES_H
#define FOLIO_TYPES_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- limits ------------------------------------------------------------------------------------------------------ */

#define FOLIO_NAMESPACE_BYTES_MAX 63
#define FOLIO_KEY_BYTES_MAX 255
#define FOLIO_NAME_BYTES_MAX (FOLIO_NAMESPACE_BYTES_MAX + 1 + FOLIO_KEY_BYTES_MAX)
#define FOLIO_METADATA_BYTES_MAX 4096
#define FOLIO_CONTENT_TYPE_BYTES_MAX 255
#define FOLIO_OBJECT_BYTES_MAX (UINT64_C(1) << 46)
#define FOLIO_NAMESPACE_DEFAULT "default"

/* A wait without end. */
#define FOLIO_TIMEOUT_FOREVER (-1)

/* --- errors: what each number means when Folio returns it -------------------------------------------------------- */

#define FOLIO_E_NOT_FOUND (-ENOENT)        /* no object (or namespace) of that name, and none is remembered */
#define FOLIO_E_DELETED (-EIDRM)           /* it was deleted */
#define FOLIO_E_EVICTED (-ESTALE)          /* it was evicted to make room */
#define FOLIO_E_EXPIRED (-ETIME)           /* its lifetime ended */
#define FOLIO_E_WRITING (-EBUSY)           /* it is still being written; or still mapped, where a seal is asked */
#define FOLIO_E_WRITER_DIED (-EOWNERDEAD)  /* it was being written and its writer is gone */
#define FOLIO_E_EXISTS (-EEXIST)           /* the name is taken */
#define FOLIO_E_ACCESS (-EACCES)           /* the namespace does not let this uid do that */
#define FOLIO_E_FULL (-ENOSPC)             /* the store has no memory left for it */
#define FOLIO_E_TOO_LARGE (-EFBIG)         /* it can never fit: larger than the store, the quota or a format limit */
#define FOLIO_E_LIMIT (-EDQUOT)            /* a limit is reached; the sentence says which and how much */
#define FOLIO_E_DAEMON_GONE (-ENOTCONN)    /* no foliod answers */
#define FOLIO_E_PROTOCOL (-EPROTO)         /* the other side does not speak as agreed */
#define FOLIO_E_TIMEOUT (-ETIMEDOUT)       /* the time asked for has passed */
#define FOLIO_E_RANGE (-ERANGE)            /* offset and length lie outside the object */
#define FOLIO_E_INVALID (-EINVAL)          /* an argument that can never be right: a bad name, a handle already released */
#define FOLIO_E_STATE (-EPERM)             /* not in this state: writing to a sealed object, truncating an immutable one */
#define FOLIO_E_UNSUPPORTED (-EOPNOTSUPP)  /* this daemon, backing or kernel cannot */
#define FOLIO_E_FORKED (-ECHILD)           /* the client belongs to the parent process; open another after fork() */
#define FOLIO_E_CANCELLED (-ECANCELED)     /* the request ended because its client was closed */
#define FOLIO_E_NO_MEMORY (-ENOMEM)        /* this process has no memory left */
#define FOLIO_E_IO (-EIO)                  /* the kernel failed to read or keep the bytes; or an internal failure */

/* --- objects ----------------------------------------------------------------------------------------------------- */

enum folio_state {
        FOLIO_STATE_WRITING = 1, /* created, not sealed: only its creator can reach the bytes */
        FOLIO_STATE_SEALED = 2,  /* immutable */
        FOLIO_STATE_MUTABLE = 3  /* shared memory with a size that can change */
};

enum folio_lifetime {
        FOLIO_UNTIL_DELETED = 0, /* until somebody deletes it */
        FOLIO_WITH_CREATOR = 1,  /* deleted when the connection of its creator ends, for whatever reason */
        FOLIO_UNTIL_TIME = 2     /* expires at expires_ns */
};

/* What keeps everybody from changing the bytes of a sealed object; what `stat` may claim. */
enum folio_protection {
        /* nothing: a mutable object, one being written, or one in a tmpfs file whose writer has foliod's uid or is root */
        FOLIO_PROTECTION_NONE = 0,
        FOLIO_PROTECTION_KERNEL = 1,  /* kernel seals on a memfd: nobody, of any uid, can */
        FOLIO_PROTECTION_MODE = 2,    /* a file mode: nobody but the uid of foliod, and root, can */
        FOLIO_PROTECTION_TRUSTED = 3  /* the program that placed it is trusted not to; others cannot: folio(7), PROTECTION */
};

enum folio_backing {
        FOLIO_BACKING_MEMFD = 1,
        FOLIO_BACKING_TMPFS = 2,
        FOLIO_BACKING_HUGETLB = 3 /* no foliod of this version has it */
};

enum folio_placement {
        FOLIO_PLACEMENT_PACKED = 1, /* part of a region with other objects: small ones, or of any size that a trusted writer placed */
        FOLIO_PLACEMENT_OWN = 2     /* a region of its own */
};

/* Who may write the memory of sealed objects in a namespace. */
enum folio_writers {
        FOLIO_WRITERS_UNTRUSTED = 1, /* nobody: foliod copies small objects in, large ones are sealed by the kernel */
        FOLIO_WRITERS_TRUSTED = 2    /* a client may place objects itself, in regions that it alone writes: see FOLIO_PROTECTION_TRUSTED */
};

enum folio_huge {
        FOLIO_HUGE_AUTO = 0,
        FOLIO_HUGE_ALWAYS = 1,
        FOLIO_HUGE_NEVER = 2
};

/* For folio_create() and folio_put(). */
#define FOLIO_REPLACE (1u << 0) /* where the name is taken, move it to the new object in one step, when that is sealed */
#define FOLIO_MUTABLE (1u << 1) /* the object is never sealed; create only */
#define FOLIO_SPARSE (1u << 2)  /* do not reserve memory page by page: unwritten parts stay holes; create only */
#define FOLIO_OWN_REGION (1u << 3) /* a region of its own, however small */
#define FOLIO_STREAM (1u << 4)  /* the size is not known: folio_object_write() appends, the seal fixes it; create only */
#define FOLIO_PUT_VISIBLE (1u << 5) /* the put, or the seal, returns when every client can get the object: see folio_flush() */

/* For folio_get(). */
#define FOLIO_GET_UNMAPPED (1u << 0) /* hold the object, map nothing: for folio_object_read() */
#define FOLIO_GET_WRITABLE (1u << 1) /* a mutable object, to be written through its mapping */
#define FOLIO_GET_POPULATE (1u << 2) /* fault the whole mapping in at once */
/* bit 3 is FOLIO_MAP_PRIVATE */
#define FOLIO_GET_SEALED (1u << 4) /* bytes that nobody can change: of an object that only its writer's word protects, a copy */
#define FOLIO_GET_POLL (1u << 5) /* while it waits: look again and again, and sleep only after some 100 us; takes a processor */

/* For folio_object_map_async(), besides FOLIO_GET_WRITABLE and FOLIO_GET_POPULATE. */
#define FOLIO_MAP_PRIVATE (1u << 3) /* copy-on-write memory of the caller's own: folio_object_map_private() */

/* For folio_delete(). */
#define FOLIO_IF_EXISTS (1u << 0) /* a name that is not there is no error */

/* For folio_client_open(). */
#define FOLIO_OPEN_SPAWN (1u << 0) /* where no foliod answers, start one for this user */
#define FOLIO_OPEN_DUMPABLE (1u << 1) /* mapped objects are in core dumps of this process: folio_client_open() */
#define FOLIO_OPEN_VISIBLE (1u << 2) /* every put, seal and delete of this client is as with FOLIO_PUT_VISIBLE */
#define FOLIO_OPEN_TOOL (1u << 3) /* a tool for people, which gets in although a limit is reached: folio_client_open() */

/* --- namespaces -------------------------------------------------------------------------------------------------- */

/* Rights, thrice: `owner << 6 | group << 3 | others`, as in a file mode. */
#define FOLIO_RIGHT_READ 4u
#define FOLIO_RIGHT_WRITE 2u
#define FOLIO_RIGHT_ADMIN 1u

/* --- events ------------------------------------------------------------------------------------------------------ */

enum folio_event_type {
        FOLIO_EVENT_SEALED = 1,   /* a new object can be got (a mutable one: was created) */
        FOLIO_EVENT_REPLACED = 2, /* the name has moved to a new object */
        FOLIO_EVENT_DELETED = 3,
        FOLIO_EVENT_EVICTED = 4,
        FOLIO_EVENT_EXPIRED = 5,
        FOLIO_EVENT_MISSED = 6    /* the watcher was too slow: n_missed events are gone, list again */
};

#ifdef __cplusplus
}
#endif

#endif
