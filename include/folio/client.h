/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client: one connection to foliod, with everything the process has mapped through it. Used by any number of
 * threads at once. After fork() the child's calls on an inherited client fail with FOLIO_E_FORKED; memory mapped
 * from objects with a region of their own stays valid in the child, memory of small objects only as long as the
 * parent holds them.
 *
 * Event loops: watch folio_client_get_fd() for folio_client_get_events() and call folio_client_process() when it is
 * ready. Programs that only make blocking calls need none of the three.
 *
 * Every call that can wait for foliod has a form with `_async`, which takes the same arguments and a completion. It
 * returns 0 where the completion will come, or FOLIO_E_INVALID, FOLIO_E_FORKED, FOLIO_E_NO_MEMORY, or another error
 * that needs no asking: then nothing has begun, and none comes. What is borrowed by the blocking form for the call, but
 * for names, options and settings, which are copied, is lent to the asynchronous one until it completes: the bytes that
 * are put, the buffer that is read into, the struct, array or pointer that receives the result, the items of a batch and
 * what they point to. An answer that counts (folio_exists(), folio_holders(), the batches, the lists of namespaces and
 * facts) comes as a positive `error`. Copies, and the reading of an index for a list, are made by the thread that
 * calls the completion. The calls that move bytes from and to descriptors have no such form: they wait for those. Nor
 * has folio_watch_next(), which waits for no answer: folio_watch_get_fd() says when it would not.
 */
#ifndef FOLIO_CLIENT_H
#define FOLIO_CLIENT_H

#include <folio/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct folio_client;
struct folio_object;

/*
 * Set `struct_bytes` to sizeof(struct folio_open_options), everything not asked for to 0.
 */
struct folio_open_options {
        size_t struct_bytes;
        const char *address;       /* path of the socket; NULL: see folio_client_open() */
        const char *client_name;   /* shown to administrators; NULL: the program's name */
        uint32_t flags;            /* FOLIO_OPEN_* */
        int32_t timeout_ms;        /* bound on every wait for the daemon; 0: 30 s; FOLIO_TIMEOUT_FOREVER */
        uint64_t mapping_bytes_max; /* mappings kept for reuse after release; 0: a quarter of memory */
        uint32_t mappings_max;      /* how many mappings are kept for reuse; 0: 1024. Those in use have vm.max_map_count as their bound. */
        uint32_t copy_threads;      /* helper threads for reads of 64 MiB and more, at most 16; 0: none, the caller copies alone */
};

/*
 * A completion: @error is what the blocking form would have returned: 0, a negative error, or, where that counts, a
 * positive answer; @object is a new handle that the callee now owns, where the call
 * makes one, else NULL. Called once, from folio_client_process() or from a blocking call on the same client in any
 * thread, or before the *_async function returns; never after folio_client_unref() of the last reference has
 * returned. No lock is held: it may call anything of libfolio that does not block.
 */
typedef void (*folio_done_fn)(struct folio_client *client, int error, struct folio_object *object, void *userdata);

/**
 * folio_client_open() - connect to foliod
 * @options:  NULL for defaults; borrowed for the call
 * @ret:      new client, one reference; written only on success
 *
 * The address is @options->address, else $FOLIO_SOCKET: where one is given it is the only one tried. Else it is the
 * first that answers of $XDG_RUNTIME_DIR/folio/folio.sock (/tmp/folio-UID/folio.sock where that variable is not set) and
 * /run/folio/folio.sock. The user's own is passed over where its directory is not the user's, or lets others in.
 * With FOLIO_OPEN_SPAWN a foliod for this user is started where none answers; of many that try at once one
 * starts it and all are connected to it. It ends by itself when it has been empty and unused for a while.
 *
 * What is mapped through a client is left out of core dumps: a program that maps 20 GiB and crashes leaves a core without
 * them. With FOLIO_OPEN_DUMPABLE the objects that are mapped at that moment are in it, to their last byte: those mapped for
 * writing, and private views; those mapped for reading only where bit 2 of /proc/PID/coredump_filter is set, see core(5), as to
 * the kernel they are files that it could find on disk.
 *
 * Puts, seals and deletes return before others can see what they did: see folio_flush(). Programs that hand names to others
 * flush before, or open with FOLIO_OPEN_VISIBLE: then each waits until every client can see it.
 *
 * A client outlives its foliod: where that ends and is followed by another, which has the same store where it has a
 * keeper (foliod(8)), the client connects again by itself, in whatever thread calls something, and the program goes on
 * with its handles, mappings, watches and objects being written. Meanwhile what the shared index and mapped memory can answer is
 * answered; what needs foliod waits, as long as @options->timeout_ms where somebody listens at the socket, and half a
 * second where nobody does: then it is FOLIO_E_DAEMON_GONE, at once for further calls, of which one in a while tries again.
 * Each put, seal and delete is done once; where it cannot be known whether it was, that is FOLIO_E_DAEMON_GONE too, and
 * folio_strerror_full() says so. After a foliod that kept nothing, what is mapped stays readable, and names are looked up
 * in the new store.
 *
 * Where all connections of this uid, or what they may take, are used up, a tool by which somebody finds out why must get in still.
 * With FOLIO_OPEN_TOOL it does: four of each uid at a time, beyond the limits. folioctl opens so. It is for nothing else: a
 * program that needs more connections wants a greater limit.
 *
 * Lifetime:  until folio_client_unref(). Objects got through it keep what they need of it.
 * Blocking:  one round trip, and the start of a daemon with FOLIO_OPEN_SPAWN; at most @options->timeout_ms.
 * Threads:   any.
 * Return:    0; FOLIO_E_DAEMON_GONE; FOLIO_E_ACCESS the socket refuses this user; FOLIO_E_PROTOCOL;
 *            FOLIO_E_TIMEOUT; FOLIO_E_LIMIT too many connections of this uid; FOLIO_E_INVALID; FOLIO_E_NO_MEMORY.
 * Since:     0.1
 */
int folio_client_open(const struct folio_open_options *options, struct folio_client **ret);

/**
 * folio_client_open_async() - connect to foliod without waiting for it
 * @options:  as for folio_client_open()
 * @ret:      new client, one reference; written before this returns 0, and before @done is called
 * @done:     called when foliod has said welcome, or when it is known that it will not
 * @userdata: for @done
 *
 * The client can be used at once: get its descriptor, begin calls. They wait until it is open, in the order they were
 * made, behind @done; a blocking call waits as long. Where the opening fails @done has the error that
 * folio_client_open() would have returned, those calls and all later ones end with FOLIO_E_DAEMON_GONE, and the client is
 * of no use but to be given up. What cannot be done without waiting (the start of a daemon, a listener whose backlog is full)
 * is done by a thread of the library, which goes on to its end, at most @options->timeout_ms, also where the client is
 * given up meanwhile.
 *
 * Lifetime:  until folio_client_unref(), also where the opening fails.
 * Blocking:  never.
 * Threads:   any.
 * Return:    0; FOLIO_E_INVALID; FOLIO_E_LIMIT no descriptor left; FOLIO_E_NO_MEMORY; FOLIO_E_IO. @done gets the others of
 *            folio_client_open(), and FOLIO_E_CANCELLED.
 * Since:     0.1
 */
int folio_client_open_async(const struct folio_open_options *options, struct folio_client **ret, folio_done_fn done,
                            void *userdata);

/**
 * folio_client_ref() - take another reference
 * @client:   borrowed
 *
 * Lifetime:  each reference needs its folio_client_unref().
 * Blocking:  never.
 * Threads:   any.
 * Return:    @client.
 * Since:     0.1
 */
struct folio_client *folio_client_ref(struct folio_client *client);

/**
 * folio_client_unref() - give a reference up; the last one closes the connection
 * @client:   NULL is legal
 *
 * Requests still under way complete with FOLIO_E_CANCELLED. Objects of this client that are not released yet stay
 * readable; the daemon no longer knows that they are held, so small ones (folio_stat.placement packed) must not be
 * read any more. Objects being written are aborted by the daemon.
 *
 * Lifetime:  ends that of @client.
 * Blocking:  never.
 * Threads:   any; not while another thread uses the last reference.
 * Return:    nothing.
 * Since:     0.1
 */
void folio_client_unref(struct folio_client *client);

/**
 * folio_client_get_fd() - the descriptor an event loop polls
 * @client:   borrowed
 *
 * Lifetime:  the descriptor is the client's: do not close it; valid as long as the client.
 * Blocking:  never.
 * Threads:   any.
 * Return:    a descriptor; FOLIO_E_FORKED.
 * Since:     0.1
 */
int folio_client_get_fd(struct folio_client *client);

/**
 * folio_client_get_events() - what to poll the descriptor for
 * @client:   borrowed
 *
 * Lifetime:  ask again after each folio_client_process().
 * Blocking:  never.
 * Threads:   any.
 * Return:    a set of POLLIN and POLLOUT; FOLIO_E_FORKED.
 * Since:     0.1
 */
int folio_client_get_events(struct folio_client *client);

/**
 * folio_client_process() - send and receive what can be without waiting, and call completions
 * @client:   borrowed
 *
 * Also connects again when foliod has ended: the descriptor stays the same, and is readable when there is something to be
 * done about it. Requests under way stay so meanwhile.
 *
 * Lifetime:  nothing is kept.
 * Blocking:  never, but for the callbacks.
 * Threads:   any; a callback runs in one thread only.
 * Return:    the number of requests completed; FOLIO_E_DAEMON_GONE (nobody listens, all requests under way have been
 *            completed with it, and a later call may find foliod again); FOLIO_E_PROTOCOL; FOLIO_E_LIMIT; FOLIO_E_FORKED.
 * Since:     0.1
 */
int folio_client_process(struct folio_client *client);

/**
 * folio_flush() - wait until everything this client has put, sealed or deleted can be seen by every other client
 * @client:   borrowed
 * @done:     of the asynchronous form
 * @userdata: for @done
 *
 * folio_put(), folio_object_seal() and folio_delete() return when foliod has been told in memory that it shares with
 * this client; it carries out what it is told in order, and soon, but after the call. This client sees what it has
 * done at once, in every thread; others when it is carried out. What can be known before is refused by the call
 * itself (a name that is taken, or not there; no right; no memory). What turns out later, as when another client has
 * taken the name in between, or a quota is used up, is the answer of the next flush: of several the first;
 * folio_put_many() has an error for each. What was refused is then not there for this client either. Where one such
 * refusal was for want of memory or for a limit, the next put waits for its own answer. So a program that must know
 * flushes, as it does with files; one that always must know uses FOLIO_PUT_VISIBLE, or FOLIO_OPEN_VISIBLE. What was
 * put before the program ends, in whatever way, is carried out. Where foliod ends, what was put is carried out by the next
 * one, which the flush waits for; where that does not know this client any more, the flush says that it is not known.
 *
 * Lifetime:  nothing is kept.
 * Blocking:  until foliod has carried out what was asked for before; no time at all where it has already.
 * Threads:   any; the first failure since the last flush is told to one of those that ask.
 * Return:    0; the error of the first of them that failed since the last flush, with its name in folio_strerror_full(): FOLIO_E_EXISTS;
 *            FOLIO_E_WRITING; FOLIO_E_NOT_FOUND; FOLIO_E_DELETED; FOLIO_E_EXPIRED; FOLIO_E_ACCESS; FOLIO_E_FULL;
 *            FOLIO_E_TOO_LARGE; FOLIO_E_LIMIT; FOLIO_E_STATE; or FOLIO_E_DAEMON_GONE; FOLIO_E_TIMEOUT; FOLIO_E_INVALID; FOLIO_E_FORKED;
 *            FOLIO_E_NO_MEMORY; FOLIO_E_IO.
 * Since:     0.1
 */
int folio_flush(struct folio_client *client);
int folio_flush_async(struct folio_client *client, folio_done_fn done, void *userdata);

/**
 * folio_strerror() - what an error number means, in general
 * @error:    a value returned by libfolio
 *
 * Lifetime:  static.
 * Blocking:  never.
 * Threads:   any.
 * Return:    a phrase, never NULL.
 * Since:     0.1
 */
const char *folio_strerror(int error);

/**
 * folio_strerror_full() - why the last failed call of this thread failed, with its numbers
 *
 * One sentence: what was asked, what stood in the way, with numbers, and what can be done where that is not plain. In a
 * completion callback it is about the request being completed.
 *
 * Lifetime:  valid until the next call into libfolio by this thread.
 * Blocking:  never.
 * Threads:   each thread has its own.
 * Return:    a sentence, never NULL; "" when nothing has failed.
 * Since:     0.1
 */
const char *folio_strerror_full(void);

#ifdef __cplusplus
}
#endif

#endif
