/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper holds duplicates of descriptors for the next foliod, should this one end in whatever way. It is spoken to
 * as a service manager is: FDSTORE messages on NOTIFY_SOCKET, and LISTEN_FDS to the successor; systemd plays the part,
 * or our own keeper process (keeper-process.h), and nothing here knows which.
 *
 * A service manager is slow with many descriptors (4,000 of them cost PID 1 half a minute at each reload), so only a
 * few are stored as they are. The others are *parked*: sent by SCM_RIGHTS into the queue of a socketpair, one message
 * for each with its record, and only the pair's receiving end (a *segment*) is stored. MSG_PEEK gives them back and
 * leaves them where they are. One that is dropped is taken out of the queue by moving those before it, each sent again
 * before it is consumed: whatever moment this process ends at, what is kept is in a queue at least once, and who finds
 * it twice takes it once.
 *
 * Any thread may call keeper_keep() and keeper_drop(). What a record means is its user's.
 */
#ifndef DAEMON_SERVICE_KEEPER_H
#define DAEMON_SERVICE_KEEPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Keeper Keeper;
typedef struct Kept Kept;            /* a descriptor that is being kept */

#define KEEPER_RECORD_VERSION 1
#define KEEPER_TEXT_BYTES_MAX 80

/* Numbers are for ever: another version's foliod reads them. */
typedef enum KeptKind {
        KEPT_INDEX = 1,              /* owner: namespace id; id: index generation */
        KEPT_PACKED = 2,             /* owner: namespace id; id: region id */
        KEPT_LEASED = 3,             /* the same */
        KEPT_BOOK = 4,               /* owner: namespace id; id: the leased region's */
        KEPT_OWN = 5,                /* owner: namespace id; id: region id */
        KEPT_STAGING = 6,            /* owner: session number; id: its token; detail: uid, gid << 32; text: comm */
        KEPT_PROCESS = 7,            /* owner: session number; a pidfd of the client */
        KEPT_RING = 8,               /* owner: session number */
        KEPT_BELL = 9,               /* owner: session number */
        KEPT_PINS = 10,              /* owner: session number; id: namespace id */
        KEPT_WATCH = 11,             /* owner: session number; id: namespace id */
        KEPT_LISTENER = 12,          /* the socket that clients connect to, where it is ours */
} KeptKind;

typedef struct KeptRecord {
        uint32_t version;            /* keeper_keep() sets it, and inode and size_bytes, by fstat() */
        uint32_t kind;               /* KeptKind */
        uint32_t owner;
        uint32_t n_text;             /* bytes of text */
        uint64_t id;
        uint64_t detail;
        uint64_t inode;
        uint64_t size_bytes;
        char text[KEEPER_TEXT_BYTES_MAX];
} KeptRecord;

typedef struct KeeperConfig {
        unsigned n_stored_max;       /* what may be stored with the manager: FileDescriptorStoreMax */
        bool is_guess;               /* the manager does not say: how much less it is is found out (keeper-probe.h) */
        unsigned n_segments_aim;     /* parked ones are spread over so many; more of them: less to move; 0: 32 */
} KeeperConfig;

/* What a manager passes to a process that it starts: @names[i] is that of @fds[i]. */
typedef struct KeeperPassed {
        size_t n;
        char **names;
        int *fds;
} KeeperPassed;

/*
 * Takes what the predecessor has left out of the environment (LISTEN_FDS, LISTEN_FDNAMES; the names that are not the
 * keeper's stay for keeper_take_socket()). Before anything else opens descriptors. 0; KEEPER_E_GONE: there is no
 * NOTIFY_SOCKET; or a negative errno.
 */
int keeper_new(const KeeperConfig *config, Keeper **ret);

/* The same without the environment. The descriptors go over, whatever comes of it. */
int keeper_new_from(const KeeperConfig *config, const char *address, const KeeperPassed *consume_passed, Keeper **ret);
void keeper_free(Keeper *keeper);    /* what is kept stays kept; every Kept that is left goes */

/* The manager's other descriptors: sockets that listen. Each once; -1: no more. */
int keeper_take_socket(Keeper *keeper);

/*
 * A KEPT_LISTENER of the predecessor's, before and instead of keeper_take_all(); as the others go over there. Each
 * once; -1: no more. Listeners are only ever kept directly.
 */
int keeper_take_listener(Keeper *keeper, KeptRecord *ret_record, Kept **ret_kept);

/*
 * Tells @each of everything that the predecessor kept; @consume_fd is a duplicate, CLOEXEC, and goes over, as does
 * @kept, which keeps the original until it is dropped. What is there twice is told once. What cannot be read is
 * dropped and counted: *@ret_n_bad. 0, KEEPER_E_NEWER or a negative errno; nobody is told anything and nothing is lost
 * with these.
 */
int keeper_take_all(Keeper *keeper,
                    void (*each)(void *userdata, const KeptRecord *record, int consume_fd, Kept *kept),
                    void *userdata, uint64_t *ret_n_bad);

enum {
        KEEPER_E_FULL = 1,           /* the manager, or the kernel, takes no more: keeper_explain() */
        KEEPER_E_GONE = 2,           /* nobody keeps anything (any more) */
        KEEPER_E_NEWER = 3,          /* a later foliod has left records that this one does not know */
};

/*
 * When it returns 0, a successor gets a duplicate of @fd, with the record. @is_direct: stored by itself where there is
 * room for one of the few, which takes as long as the manager does (a fraction of a millisecond, or some): for what a
 * worker thread makes. Its record is a name that every user of the machine can read (a KEPT_STAGING, whose id is a
 * secret, is parked whatever is asked for), and no open file may be kept directly twice. Otherwise one system call,
 * or, where no segment has room and the next is not ready, a wait for it of at most two seconds. KEEPER_E_* or a
 * negative errno, and nothing is kept.
 */
int keeper_keep(Keeper *keeper, KeptRecord *record, int fd, bool is_direct, Kept **ret);

/* NULL: nothing. The duplicate goes soon, in a thread of the keeper's. */
void keeper_drop(Keeper *keeper, Kept *consume_kept);

/*
 * The process is about to end and a successor shall find everything: finishes what was dropped so far; from now on
 * keeper_drop() only forgets the Kept, and keeper_keep() answers KEEPER_E_GONE.
 */
void keeper_freeze(Keeper *keeper);

/* Who keeps is known to have ended: it is not waited for. Says so once. */
void keeper_set_gone(Keeper *keeper);
bool keeper_is_gone(Keeper *keeper);

/*
 * The start is over. From now on some of what may be stored is left for that of the next process, which cannot put anything
 * into the segments of its predecessors, and has to keep its indexes before it drops theirs.
 */
void keeper_reserve(Keeper *keeper);

/* Returns when all that was dropped before is gone: for tests, and before an end in order. */
void keeper_settle(Keeper *keeper);

/* A sentence for KEEPER_E_*, with the numbers; static or the keeper's. */
const char *keeper_explain(const Keeper *keeper, int outcome);

typedef struct KeeperFacts {
        uint64_t n_direct;           /* stored by themselves */
        uint64_t n_parked;
        uint64_t n_segments;
        uint64_t n_stored_max;
        uint64_t n_parked_max;       /* what segments have room for, and the kernel lets a user have in flight */
        uint64_t n_moved;            /* sent again, to get at one behind them */
        uint64_t n_failed;           /* that could not be kept */
} KeeperFacts;

void keeper_get_facts(Keeper *keeper, KeeperFacts *ret);

#endif
