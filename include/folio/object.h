/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects: put, create and fill, get, read, stat, list, truncate, delete.
 *
 * A `struct folio_object *` is a handle. It is checked on every call: one that was released already, or was never a
 * handle, answers FOLIO_E_INVALID and does no harm. A handle holds its object (a *pin*): deleted, replaced or
 * expired meanwhile, its bytes stay as they are until folio_object_release().
 *
 * Bad memory. Where the machine has lost a page of an object (a memory error that could not be corrected) the calls
 * that copy bytes out (folio_read(), folio_object_read(), folio_read_many() and their asynchronous forms) answer
 * FOLIO_E_IO for that object, and other objects, and other parts of this one, are read as ever. A program that touches the lost bytes
 * itself, through folio_object_data() or another mapping, gets SIGBUS from the kernel, as with any memory; so what must
 * outlive such a page is read, not mapped. The store has no second copy: delete the object and put it again.
 */
#ifndef FOLIO_OBJECT_H
#define FOLIO_OBJECT_H

#include <folio/client.h>

#ifdef __cplusplus
extern "C" {
#endif

/* For folio_put() and folio_create(). Set `struct_bytes`; everything not asked for is 0. */
struct folio_create_options {
        size_t struct_bytes;
        uint32_t flags;              /* FOLIO_REPLACE, FOLIO_MUTABLE, FOLIO_SPARSE, ... */
        uint32_t lifetime;           /* enum folio_lifetime */
        uint64_t expires_ns;         /* CLOCK_REALTIME, with FOLIO_UNTIL_TIME */
        uint64_t capacity_bytes;     /* the largest size a FOLIO_MUTABLE object can be given; 0: its first size */
        const void *metadata;        /* up to FOLIO_METADATA_BYTES_MAX bytes of the user's own, fixed at creation */
        size_t metadata_bytes;
        const char *content_type;    /* up to FOLIO_CONTENT_TYPE_BYTES_MAX bytes; NULL for none */
};

/* Set `struct_bytes` before the call; a library older than the caller leaves the later fields 0. */
struct folio_stat {
        size_t struct_bytes;
        uint64_t generation;         /* no other object of this store has it; of one name, the later has the greater */
        uint64_t size_bytes;
        uint64_t capacity_bytes;     /* mutable objects; else size_bytes */
        uint64_t allocated_bytes;    /* memory behind it; of a packed object its size rounded up to 64 bytes, at least 64 */
        uint64_t huge_bytes;         /* of these, in folios of 2 MiB: as found, not as asked for; 0 for a packed object, whatever its pages are */
        uint64_t created_ns;         /* CLOCK_REALTIME */
        uint64_t changed_ns;         /* sealed at; of a mutable object: last truncated at */
        uint64_t expires_ns;         /* 0: never */
        uint32_t state;              /* enum folio_state */
        uint32_t lifetime;           /* enum folio_lifetime */
        uint32_t protection;         /* enum folio_protection */
        uint32_t backing;            /* enum folio_backing */
        uint32_t placement;          /* enum folio_placement */
        uint32_t owner_uid;
        uint32_t has_holes;          /* 1: parts were never written and take no memory */
        uint32_t metadata_bytes;
        char content_type[FOLIO_CONTENT_TYPE_BYTES_MAX + 1];
        char name[FOLIO_NAME_BYTES_MAX + 1]; /* with its namespace */
        uint64_t zero_bytes;         /* sealed, with a region of its own: known to be zeros, and read without touching memory */
};

/* Who holds an object. */
struct folio_holder {
        size_t struct_bytes;
        int32_t pid;                 /* 0 where the holder lives in a pid namespace we cannot see */
        uint32_t uid;
        uint64_t n_pins;
        uint64_t connected_ns;       /* CLOCK_REALTIME when its connection began */
        char comm[64];               /* the name the client gave, else the program's */
};

/* --- putting ----------------------------------------------------------------------------------------------------- */

/**
 * folio_put() - make an object of bytes
 * @client:     borrowed
 * @name:       `namespace:key`
 * @data:       @size_bytes bytes; borrowed (of the async form: until it completes); NULL only where that is 0
 * @size_bytes: 0 is an object like any other
 * @options:    NULL for defaults; borrowed for the call
 *
 * Of an object of less than 64 KiB without metadata and content type, with a key of at most 72 bytes, it returns when the bytes are
 * where they stay, or on their way there, and foliod has been told: this client sees the object at once, others a moment later,
 * and what only foliod can find out (another client was faster, a quota is used up) is the answer of folio_flush(). With
 * FOLIO_PUT_VISIBLE (or FOLIO_OPEN_VISIBLE), and of larger objects, it returns when every client can get the object.
 *
 * Lifetime:  the object lives as @options->lifetime says, and sealed, from when this returns 0, also if this process ends.
 * Blocking:  the copy, and no system call most of the time; else one round trip for small objects, two for large ones.
 * Threads:   any.
 * Return:    0; FOLIO_E_EXISTS; FOLIO_E_ACCESS; FOLIO_E_FULL; FOLIO_E_TOO_LARGE; FOLIO_E_LIMIT; FOLIO_E_NOT_FOUND no
 *            such namespace; FOLIO_E_INVALID; FOLIO_E_DAEMON_GONE; FOLIO_E_TIMEOUT; FOLIO_E_PROTOCOL; FOLIO_E_FORKED;
 *            FOLIO_E_NO_MEMORY; FOLIO_E_IO. On failure nothing is left behind, but after FOLIO_E_TIMEOUT and
 *            FOLIO_E_DAEMON_GONE the object may exist.
 * Since:     0.1
 */
int folio_put(struct folio_client *client, const char *name, const void *data, uint64_t size_bytes,
              const struct folio_create_options *options);
int folio_put_async(struct folio_client *client, const char *name, const void *data, uint64_t size_bytes,
                    const struct folio_create_options *options, folio_done_fn done, void *userdata);

/**
 * folio_create() - begin an object, to be filled and then sealed
 * @client:     borrowed
 * @name:       `namespace:key`
 * @size_bytes: of the object; with FOLIO_STREAM: 0
 * @options:    NULL for defaults; borrowed for the call
 * @ret:        new handle; written only on success
 *
 * When it returns 0 every byte can be written: the memory is there (unless FOLIO_SPARSE). The name is taken from now
 * on; others see FOLIO_STATE_WRITING, perhaps a moment later. A mutable object is complete at once and needs no seal. What
 * is never written reads as zeros.
 *
 * Small objects, and where writers are trusted (FOLIO_WRITERS_TRUSTED) all that are neither mutable nor FOLIO_SPARSE, FOLIO_STREAM
 * or FOLIO_OWN_REGION, are created as folio_put() puts: what fails later is the answer of folio_object_seal(), or of
 * folio_flush(). FOLIO_PUT_VISIBLE makes this call and the seal wait for foliod.
 *
 * Lifetime:  until folio_object_seal() the object dies with folio_object_abort(), with the release of the handle, or
 *            with the connection.
 * Blocking:  one round trip, and the time it takes to reserve the memory; none where it is created as folio_put() puts.
 * Threads:   any.
 * Return:    as folio_put().
 * Since:     0.1
 */
int folio_create(struct folio_client *client, const char *name, uint64_t size_bytes,
                 const struct folio_create_options *options, struct folio_object **ret);
int folio_create_async(struct folio_client *client, const char *name, uint64_t size_bytes,
                       const struct folio_create_options *options, folio_done_fn done, void *userdata);

/**
 * folio_object_write() - store bytes in an unsealed or mutable object
 * @object:       handle from folio_create(), or from folio_get() with FOLIO_GET_WRITABLE
 * @offset_bytes: where; with FOLIO_STREAM: the end of what is there
 * @data:         @n_bytes bytes; borrowed for the call (of the async form: until it completes)
 * @n_bytes:      any
 *
 * The fast way to fill a large object: no page is faulted in and none is zeroed first. In a stream one asynchronous
 * write at a time is under way: until it has completed another write, or the seal, is FOLIO_E_STATE.
 *
 * Lifetime:  -
 * Blocking:  the copy; with FOLIO_STREAM also a round trip for every MiB or so.
 * Threads:   any; two that write the same bytes leave a mixture.
 * Return:    0; FOLIO_E_RANGE; FOLIO_E_STATE it is sealed, or not got for writing; FOLIO_E_FULL, FOLIO_E_LIMIT,
 *            FOLIO_E_TOO_LARGE with FOLIO_STREAM; FOLIO_E_INVALID; FOLIO_E_DAEMON_GONE; FOLIO_E_TIMEOUT; FOLIO_E_FORKED; FOLIO_E_IO.
 * Since:     0.1
 */
int folio_object_write(struct folio_object *object, uint64_t offset_bytes, const void *data, size_t n_bytes);
int folio_object_write_async(struct folio_object *object, uint64_t offset_bytes, const void *data, size_t n_bytes,
                             folio_done_fn done, void *userdata);

/**
 * folio_object_write_file() - store bytes that a descriptor has
 * @object:       handle from folio_create(), or from folio_get() with FOLIO_GET_WRITABLE
 * @offset_bytes: where; with FOLIO_STREAM: the end of what is there
 * @fd:           read from its position on, which moves: a file, a pipe, a socket, a device; borrowed
 * @n_bytes:      how many at most, all inside the object; with FOLIO_STREAM any, UINT64_MAX for all there are
 * @ret_n_bytes:  how many were stored: fewer than @n_bytes where @fd came to its end; written only on success
 *
 * The fastest way to make an object of a file: the kernel copies from the file's pages, or the pipe's, into the
 * object's memory, once. Bytes of a file that changes meanwhile are as they are found, and one that is cut down is a
 * source that ends. After a failure some may have been stored; the position of a file tells how many (with
 * FOLIO_STREAM folio_object_size() does, and the stream goes on from there, unless it was the store that failed).
 *
 * Lifetime:  -
 * Blocking:  the copy, and for @fd, also where that is O_NONBLOCK; an object got for writing and not mapped: one round
 *            trip; with FOLIO_STREAM one for every MiB or so.
 * Threads:   any; two that write the same bytes leave a mixture. Not while another thread seals @object.
 * Return:    0; FOLIO_E_RANGE; FOLIO_E_STATE it is sealed, or not got for writing; FOLIO_E_IO reading @fd failed, or
 *            storing; FOLIO_E_INVALID also: @fd is not open for reading; FOLIO_E_FULL, FOLIO_E_LIMIT,
 *            FOLIO_E_TOO_LARGE with FOLIO_STREAM; FOLIO_E_ACCESS; FOLIO_E_DAEMON_GONE; FOLIO_E_TIMEOUT;
 *            FOLIO_E_PROTOCOL; FOLIO_E_FORKED; FOLIO_E_NO_MEMORY.
 * Since:     0.1
 */
int folio_object_write_file(struct folio_object *object, uint64_t offset_bytes, int fd, uint64_t n_bytes,
                            uint64_t *ret_n_bytes);

/**
 * folio_object_map_write() - the object's memory, to be written in place
 * @object: handle from folio_create() (not with FOLIO_STREAM), or from folio_get() with FOLIO_GET_WRITABLE
 * @ret:    address of byte 0; a mutable object is mapped to its capacity
 *
 * Of a new object that is not FOLIO_SPARSE the first 64 MiB are faulted in at once, which costs less than as many faults;
 * with folio_object_map_async() and FOLIO_GET_POPULATE all of it is. Where its pages are of 2 MiB, the rest takes one fault for each.
 *
 * Lifetime:  until folio_object_seal(), folio_object_abort() or folio_object_release() of @object. Of a mutable
 *            object every byte up to the capacity can be touched at any time, whatever its size is; bytes beyond the
 *            size are not part of it.
 * Blocking:  one mmap(), and of a new object up to 15 ms for the first pages.
 * Threads:   any.
 * Return:    0; FOLIO_E_STATE; FOLIO_E_UNSUPPORTED with FOLIO_STREAM; FOLIO_E_INVALID; FOLIO_E_LIMIT too many mappings (vm.max_map_count);
 *            FOLIO_E_FORKED; FOLIO_E_NO_MEMORY; FOLIO_E_DAEMON_GONE; FOLIO_E_TIMEOUT.
 * Since:     0.1
 */
int folio_object_map_write(struct folio_object *object, void **ret);

/**
 * folio_object_map_private() - the bytes of a sealed object as memory of the caller's own, to be changed at will
 * @object: handle from folio_get() of an object that is not mutable, or a sealed one
 * @ret:    address of byte 0; the same for each call with this handle
 *
 * What is stored there nobody else sees, and the object stays as it is. A large object is mapped copy-on-write: only
 * pages that are written take memory of the caller's, 4 KiB each; a small one is copied. A core dump leaves
 * it out, unless the client was opened with FOLIO_OPEN_DUMPABLE. A
 * mutable object has no such view: it would follow what others write, but for the pages written here.
 *
 * Lifetime:  until folio_object_release() of @object, also when the object is deleted, replaced or expires.
 * Blocking:  a copy of up to a MiB where the object is small; else one round trip and an mmap(). None of it the second time.
 * Threads:   any; all that use one handle have one view.
 * Return:    0; FOLIO_E_STATE it is mutable, or not sealed yet; FOLIO_E_ACCESS; FOLIO_E_INVALID; FOLIO_E_LIMIT too many mappings
 *            (vm.max_map_count); FOLIO_E_NO_MEMORY; FOLIO_E_IO; FOLIO_E_DAEMON_GONE; FOLIO_E_TIMEOUT; FOLIO_E_PROTOCOL;
 *            FOLIO_E_FORKED.
 * Since:     0.1
 */
int folio_object_map_private(struct folio_object *object, void **ret);

/**
 * folio_object_map_async() - map an object, so that its address can be had without waiting
 * @object:   any handle but one being written with FOLIO_STREAM
 * @flags:    FOLIO_GET_WRITABLE for folio_object_map_write(), FOLIO_MAP_PRIVATE for folio_object_map_private(), neither for
 *            folio_object_data(); FOLIO_GET_POPULATE
 * @done:     called when that function needs no round trip and no mmap() any more
 * @userdata: for @done
 *
 * This is the asynchronous form of those three.
 *
 * Lifetime:  of the mapping, as with those.
 * Blocking:  never.
 * Threads:   any.
 * Return:    0; FOLIO_E_INVALID; FOLIO_E_FORKED; FOLIO_E_NO_MEMORY. @done gets the errors of folio_object_map_write() and
 *            folio_object_map_private(), and FOLIO_E_ACCESS.
 * Since:     0.1
 */
int folio_object_map_async(struct folio_object *object, uint32_t flags, folio_done_fn done, void *userdata);

/**
 * folio_object_seal() - make the object immutable and let everybody have it
 * @object: handle from folio_create(), not mutable; stays a handle, now for reading
 *
 * What folio_object_map_write() returned must not be used any more: it is unmapped, or belongs to what comes after. On success no
 * process can change a byte, as far as folio_stat.protection says: FOLIO_PROTECTION_TRUSTED is the word of this one.
 *
 * Of an object that was created without a round trip it returns when foliod has been told, unless FOLIO_PUT_VISIBLE was
 * asked for at its creation: others can get it a moment later. What fails then is the answer of folio_flush(), and of the
 * next call with @object.
 *
 * Lifetime:  @object holds the sealed object until it is released.
 * Blocking:  one round trip; none where it need not wait.
 * Threads:   any; not while another thread writes @object, by a call or through the mapping.
 * Return:    0; FOLIO_E_WRITING something still maps it writable (a child process, a mapping of the program's own);
 *            FOLIO_E_EXISTS another object took the name meanwhile; FOLIO_E_STATE sealed already, or mutable; FOLIO_E_INVALID;
 *            FOLIO_E_DAEMON_GONE; FOLIO_E_TIMEOUT; FOLIO_E_FORKED; FOLIO_E_IO.
 * Since:     0.1
 */
int folio_object_seal(struct folio_object *object);
int folio_object_seal_async(struct folio_object *object, folio_done_fn done, void *userdata);

/**
 * folio_object_abort() - give an unsealed object up, and release the handle
 * @object: handle from folio_create()
 *
 * Lifetime:  ends that of the handle, whatever is returned but FOLIO_E_INVALID.
 * Blocking:  never: the daemon is told, not asked. Who looks for a name on this client afterwards waits until it has
 *            been done.
 * Threads:   any.
 * Return:    0; FOLIO_E_STATE it is sealed: the handle is released, the object stays; FOLIO_E_INVALID; FOLIO_E_FORKED.
 * Since:     0.1
 */
int folio_object_abort(struct folio_object *object);

/* --- getting ----------------------------------------------------------------------------------------------------- */

/**
 * folio_get() - hold an object and map it for reading
 * @client:     borrowed
 * @name:       `namespace:key`
 * @flags:      FOLIO_GET_*
 * @timeout_ms: how long to wait for it to be there and sealed; 0: not at all; FOLIO_TIMEOUT_FOREVER
 * @ret:        new handle; written only on success
 *
 * FOLIO_GET_SEALED is for who does not trust the writer: of an object with FOLIO_PROTECTION_TRUSTED (or _NONE) the bytes are copied to
 * memory of this process, read-only; all others are held as ever. folio_object_stat() is about the object in both cases, not the
 * copy. A namespace that is not there is not waited for: FOLIO_E_NOT_FOUND. FOLIO_GET_POLL is for who waits for something that
 * comes any moment: it looks again and again for some 100 us, with a yield in between as foliod may want the same processor,
 * before it sleeps, and once more after each change near by; the asynchronous forms take no notice of it.
 *
 * Lifetime:  the bytes at folio_object_data() stay mapped and unchanged until folio_object_release(), also when
 *            the object is deleted, replaced or expires.
 * Blocking:  no system call where the object is small, or mapped already; else one round trip and an mmap(). A wait
 *            sleeps without using the CPU, and without the daemon knowing.
 * Threads:   any.
 * Return:    0; FOLIO_E_NOT_FOUND, FOLIO_E_DELETED, FOLIO_E_EVICTED, FOLIO_E_EXPIRED; FOLIO_E_WRITING it is not sealed
 *            (with timeout 0); FOLIO_E_TIMEOUT; FOLIO_E_WRITER_DIED the writer that was waited for is gone; FOLIO_E_ACCESS; FOLIO_E_STATE
 *            FOLIO_GET_WRITABLE of what is not mutable, or FOLIO_GET_SEALED of what is; FOLIO_E_LIMIT; FOLIO_E_INVALID; FOLIO_E_DAEMON_GONE;
 *            FOLIO_E_PROTOCOL; FOLIO_E_FORKED; FOLIO_E_NO_MEMORY; FOLIO_E_IO.
 * Since:     0.1
 */
int folio_get(struct folio_client *client, const char *name, uint32_t flags, int timeout_ms, struct folio_object **ret);
int folio_get_async(struct folio_client *client, const char *name, uint32_t flags, int timeout_ms, folio_done_fn done,
                    void *userdata);

/**
 * folio_object_data() - the bytes
 * @object: handle from folio_get(), or a sealed one
 *
 * Lifetime:  see folio_get(). Of a mutable object the memory to its capacity is mapped: reading beyond its size is
 *            harmless and means nothing.
 * Blocking:  never; of a handle got with FOLIO_GET_UNMAPPED, or sealed by this process and not mapped since, the
 *            first call maps as folio_get() does.
 * Threads:   any.
 * Return:    address of byte 0; NULL for a handle that is not for reading, or where the mapping failed
 *            (folio_strerror_full() says why). Not NULL for an object of 0 bytes.
 * Since:     0.1
 */
const void *folio_object_data(struct folio_object *object);

/**
 * folio_object_size() - bytes in the object now
 * @object: any handle
 *
 * Lifetime:  the size of a mutable object can change at any time.
 * Blocking:  never.
 * Threads:   any.
 * Return:    bytes; 0 for a handle that is none.
 * Since:     0.1
 */
uint64_t folio_object_size(struct folio_object *object);

/**
 * folio_object_read() - copy bytes out
 * @object:       any handle but one being written with FOLIO_STREAM
 * @offset_bytes: where to begin
 * @buffer:       room for @n_bytes
 * @n_bytes:      how many; all of them must lie inside the object
 *
 * What was never written reads as zeros, and takes no memory by being read. An object that is not mapped is mapped by
 * the first read of a part of it; one that is read whole and once may be read by descriptor instead. When to read, and when to map: MAP
 * OR READ in libfolio(3).
 *
 * Lifetime:  -
 * Blocking:  the copy; the first read of an object that is not mapped: one round trip.
 * Threads:   any. Of a mutable object the bytes are as they are found, each for itself.
 * Return:    0; FOLIO_E_RANGE (nothing is copied); FOLIO_E_INVALID; FOLIO_E_DAEMON_GONE; FOLIO_E_TIMEOUT; FOLIO_E_LIMIT;
 *            FOLIO_E_FORKED; FOLIO_E_NO_MEMORY; FOLIO_E_IO.
 * Since:     0.1
 */
int folio_object_read(struct folio_object *object, uint64_t offset_bytes, void *buffer, size_t n_bytes);
int folio_object_read_async(struct folio_object *object, uint64_t offset_bytes, void *buffer, size_t n_bytes,
                            folio_done_fn done, void *userdata);

/**
 * folio_object_read_file() - write bytes out to a descriptor
 * @object:       any handle but one being written with FOLIO_STREAM
 * @offset_bytes: where to begin
 * @fd:           written to at its position, as write() does: a file, a pipe, a socket, a device; borrowed
 * @n_bytes:      how many; all of them must lie inside the object
 *
 * What is mapped is written from there; a large object that is not is copied by the kernel and stays unmapped. A pipe
 * may be given the pages of a sealed object instead of a copy: they stay as they are until they are read.
 *
 * A pipe or socket whose other end is gone is FOLIO_E_IO. Of a socket there is no signal; of a pipe POSIX has
 * SIGPIPE sent to the calling thread, as by write(), and the library does not keep it back: who wants to see the
 * error ignores the signal.
 *
 * Lifetime:  -
 * Blocking:  the copy, and for @fd, also where that is O_NONBLOCK; an object that is not mapped: one round trip.
 * Threads:   any. Of a mutable object the bytes are as they are found, each for itself.
 * Return:    0; FOLIO_E_RANGE (nothing is written); FOLIO_E_IO writing @fd failed, and it has taken some of the bytes,
 *            how many the sentence says; FOLIO_E_INVALID also: @fd is not open for writing; FOLIO_E_ACCESS;
 *            FOLIO_E_DAEMON_GONE; FOLIO_E_TIMEOUT; FOLIO_E_LIMIT; FOLIO_E_PROTOCOL; FOLIO_E_FORKED; FOLIO_E_NO_MEMORY.
 * Since:     0.1
 */
int folio_object_read_file(struct folio_object *object, uint64_t offset_bytes, int fd, uint64_t n_bytes);

/**
 * folio_read() - copy bytes out of an object by name
 * @client:       borrowed
 * @name:         `namespace:key`
 * @offset_bytes: where to begin
 * @buffer:       room for @n_bytes
 * @n_bytes:      how many
 *
 * Lifetime:  -
 * Blocking:  as folio_get() with timeout 0 and folio_object_read().
 * Threads:   any.
 * Return:    the errors of both.
 * Since:     0.1
 */
int folio_read(struct folio_client *client, const char *name, uint64_t offset_bytes, void *buffer, size_t n_bytes);
int folio_read_async(struct folio_client *client, const char *name, uint64_t offset_bytes, void *buffer, size_t n_bytes,
                     folio_done_fn done, void *userdata);

/**
 * folio_object_release() - stop holding it
 * @object: any handle
 *
 * Lifetime:  ends that of the handle and of the pointers got from it; an unsealed object is aborted.
 * Blocking:  never.
 * Threads:   any.
 * Return:    0; FOLIO_E_INVALID a handle released already, or none: nothing was done; FOLIO_E_FORKED.
 * Since:     0.1
 */
int folio_object_release(struct folio_object *object);

/* --- asking ------------------------------------------------------------------------------------------------------ */

/**
 * folio_stat() - what is known of an object, by name
 * @client: borrowed
 * @name:   `namespace:key`
 * @ret:    filled on success; its struct_bytes is set by the caller
 *
 * Lifetime:  -
 * Blocking:  no system call (the first use of a namespace: one round trip).
 * Threads:   any.
 * Return:    0, also for an object being written; FOLIO_E_NOT_FOUND, FOLIO_E_DELETED, FOLIO_E_EVICTED,
 *            FOLIO_E_EXPIRED; FOLIO_E_ACCESS; FOLIO_E_INVALID; FOLIO_E_DAEMON_GONE; FOLIO_E_TIMEOUT; FOLIO_E_LIMIT; FOLIO_E_PROTOCOL; FOLIO_E_FORKED;
 *            FOLIO_E_NO_MEMORY.
 * Since:     0.1
 */
int folio_stat(struct folio_client *client, const char *name, struct folio_stat *ret);
int folio_stat_async(struct folio_client *client, const char *name, struct folio_stat *ret, folio_done_fn done,
                     void *userdata);
int folio_object_stat(struct folio_object *object, struct folio_stat *ret);

/**
 * folio_exists() - is there an object of that name that can be got now?
 * @client: borrowed
 * @name:   `namespace:key`
 *
 * Lifetime:  -
 * Blocking:  as folio_stat().
 * Threads:   any.
 * Return:    1 yes; 0 no (also: being written); the errors of folio_stat() that are no answer.
 * Since:     0.1
 */
int folio_exists(struct folio_client *client, const char *name);
int folio_exists_async(struct folio_client *client, const char *name, folio_done_fn done, void *userdata);

/**
 * folio_object_metadata() - the user metadata given at creation
 * @object:  any handle
 * @buffer:  room for @n_bytes
 * @n_bytes: how many at most
 *
 * Lifetime:  -
 * Blocking:  never.
 * Threads:   any.
 * Return:    bytes copied, up to FOLIO_METADATA_BYTES_MAX; FOLIO_E_RANGE the room is too small; FOLIO_E_INVALID;
 *            FOLIO_E_DELETED the object is gone and its metadata with it; FOLIO_E_FORKED.
 * Since:     0.1
 */
int folio_object_metadata(struct folio_object *object, void *buffer, size_t n_bytes);

/* A list: the objects of a namespace whose names begin alike, in order, a page at a time. */
struct folio_list;

/**
 * folio_list_open() - the objects whose names begin so
 * @client: borrowed
 * @prefix: `namespace:` and the beginning of a key, which may be empty; without a colon in `default`
 * @ret:    new list; written only on success
 *
 * An object that is there from before the call until after it is listed exactly once, also when it is replaced
 * meanwhile. Names come sorted by byte value.
 *
 * Lifetime:  until folio_list_close().
 * Blocking:  as folio_stat(), and reads the whole index of the namespace: about 50 ms for a million objects.
 * Threads:   a list is for one thread at a time.
 * Return:    0; FOLIO_E_NOT_FOUND no such namespace; FOLIO_E_ACCESS; FOLIO_E_INVALID; FOLIO_E_DAEMON_GONE; FOLIO_E_TIMEOUT; FOLIO_E_LIMIT;
 *            FOLIO_E_PROTOCOL; FOLIO_E_FORKED; FOLIO_E_NO_MEMORY.
 * Since:     0.1
 */
int folio_list_open(struct folio_client *client, const char *prefix, struct folio_list **ret);
int folio_list_open_async(struct folio_client *client, const char *prefix, struct folio_list **ret, folio_done_fn done,
                          void *userdata);

/**
 * folio_list_next() - the next page
 * @list:      borrowed
 * @entries:   an array of structs, struct_bytes set in the first
 * @n_entries: how many fit
 *
 * Lifetime:  -
 * Blocking:  as folio_stat().
 * Threads:   one at a time.
 * Return:    how many were filled; 0 at the end; FOLIO_E_INVALID; FOLIO_E_TIMEOUT where foliod has been stopped in the
 *            middle of a change: the next call goes on with the same name.
 * Since:     0.1
 */
int folio_list_next(struct folio_list *list, struct folio_stat *entries, size_t n_entries);

/**
 * folio_list_close() - give the list up
 * @list: NULL is legal
 *
 * Lifetime:  ends that of @list.
 * Blocking:  never.
 * Threads:   one at a time.
 * Return:    nothing.
 * Since:     0.1
 */
void folio_list_close(struct folio_list *list);

/**
 * folio_holders() - who holds an object
 * @client:    borrowed
 * @name:      `namespace:key`
 * @holders:   an array of structs, struct_bytes set in the first
 * @n_holders: how many fit
 *
 * Lifetime:  -
 * Blocking:  one round trip.
 * Threads:   any.
 * Return:    how many hold it, which can be more than were filled; the errors of folio_stat().
 * Since:     0.1
 */
int folio_holders(struct folio_client *client, const char *name, struct folio_holder *holders, size_t n_holders);
int folio_holders_async(struct folio_client *client, const char *name, struct folio_holder *holders, size_t n_holders,
                        folio_done_fn done, void *userdata);

/* --- changing ---------------------------------------------------------------------------------------------------- */

/**
 * folio_truncate() - give a mutable object another size
 * @client:     borrowed
 * @name:       `namespace:key`
 * @size_bytes: up to its capacity
 *
 * Shrinking gives memory back; growing shows zeros. Who maps the object never gets a signal.
 *
 * Lifetime:  -
 * Blocking:  no system call where the size is the same; else one round trip and the time it takes to reserve memory.
 * Threads:   any.
 * Return:    0; FOLIO_E_STATE it is not mutable; FOLIO_E_TOO_LARGE beyond its capacity; FOLIO_E_FULL (nothing has changed); the errors of
 *            folio_stat().
 * Since:     0.1
 */
int folio_truncate(struct folio_client *client, const char *name, uint64_t size_bytes);
int folio_truncate_async(struct folio_client *client, const char *name, uint64_t size_bytes, folio_done_fn done,
                         void *userdata);
int folio_object_truncate(struct folio_object *object, uint64_t size_bytes);
int folio_object_truncate_async(struct folio_object *object, uint64_t size_bytes, folio_done_fn done, void *userdata);

/**
 * folio_delete() - take a name, and its object, away
 * @client: borrowed
 * @name:   `namespace:key`
 * @flags:  FOLIO_IF_EXISTS
 *
 * Of an object that shares its memory with others it returns when foliod has been told: for this client the name is free at once,
 * for others a moment later, unless the client was opened with FOLIO_OPEN_VISIBLE. What fails then is the answer of folio_flush().
 *
 * Lifetime:  who holds the object keeps it until it is released; the name is free at once.
 * Blocking:  no system call most of the time, else one round trip.
 * Threads:   any.
 * Return:    0; FOLIO_E_WRITING somebody else is still writing it; the errors of folio_stat().
 * Since:     0.1
 */
int folio_delete(struct folio_client *client, const char *name, uint32_t flags);
int folio_delete_async(struct folio_client *client, const char *name, uint32_t flags, folio_done_fn done,
                       void *userdata);

#ifdef __cplusplus
}
#endif

#endif
