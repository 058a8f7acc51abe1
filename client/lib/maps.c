/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache of mappings: a hash table by (region, writable), and a list of the idle ones in the order in which they fell
 * idle.
 *
 * A reference more or less, where there are others, is one atomic operation: who has one keeps the mapping from being
 * anybody else's business. The first and the last go under the lock.
 *
 * Invariants, under `lock`: what is in the table has references or is in the idle list, never both; `idle_bytes` is
 * the sum of that list and at most `idle_bytes_max`, `n_idle` its length and at most `n_idle_max`; what is in the
 * owned list is in the idle list too, and whoever has been looked at goes to its end. Mapping, unmapping and populating are slow and happen outside
 * the lock. A Maps that has been freed lives on, closed, until the last mapping in use is given back.
 *
 * The limit: a process may have vm.max_map_count mappings, and its malloc() and pthread_create() need some too. When a
 * Maps is made it counts the mappings that the process has then, other than ours, once; ours may bring that to 90 % of
 * the sysctl. Ours are counted for the whole process, over all clients. What the program maps later is not looked at.
 */
#include "client/lib/maps.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "base/list.h"
#include "base/macro.h"

#define MAPS_COUNT_DEFAULT 65530u /* the kernel's own default of vm.max_map_count */
#define MAPS_COUNT_MIN 64u        /* even in a process that has used its share itself */
#define MAPS_BUCKETS_MIN 64u
#define MAPS_LOOKS_MAX 64u        /* of a sweep: a few microseconds under the lock */
#define MAPS_NOTES 256u           /* a power of two */

typedef struct MapsEntry MapsEntry;

struct MapsEntry {
        Mapping mapping;
        MapsEntry *next;             /* in its bucket */
        List idle;                   /* linked while n_references is 0 */
        List owned;                  /* linked while idle, and `owner` is set */
        MapsOwner owner;
        atomic_uint n_references;    /* from 0 and to 0 under the lock only */
        atomic_bool is_dropped;      /* not to be kept once idle; never taken back */
        atomic_bool is_owned;        /* `owner` is set; never taken back */
        Window windows[];
};

struct Maps {
        pthread_mutex_t lock;
        MapsEntry **buckets;
        unsigned n_buckets;          /* a power of two */
        unsigned n_entries;
        unsigned n_mappings_max;     /* for the process: compared with maps_count() */
        List idle;                   /* front: the longest idle */
        List owned;                  /* front: to be looked at next */
        unsigned n_idle;
        unsigned n_idle_max;
        uint64_t idle_bytes;
        uint64_t idle_bytes_max;
        bool is_closed;
        bool is_dumped;
        _Atomic uint64_t notes[MAPS_NOTES]; /* not under the lock: region ids, by hash, the newest wins */
};

static atomic_uint maps_n_mappings;

unsigned maps_count(void)
{
        return atomic_load_explicit(&maps_n_mappings, memory_order_relaxed);
}

/* -- mapping ------------------------------------------------------------------------------------------------------ */

/*
 * A reservation that is larger by the alignment, the file over its aligned part, and the two ends given back. Smaller
 * regions take any page: aligning them would cost a page table each.
 */
static int maps_map_aligned(int fd, size_t n_bytes, int protection, int flags, void **ret)
{
        uint64_t length, reserved_bytes;
        uint8_t *reserved, *data;
        size_t n_reserved, n_head, n_tail;

        if (!checked_align_up(n_bytes, PAGE_BYTES, &length) || !checked_add(length, HUGE_BYTES, &reserved_bytes) ||
            !checked_size(reserved_bytes, &n_reserved))
                return -ENOMEM;
        reserved = mmap(NULL, n_reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (reserved == MAP_FAILED)
                return -errno;
        data = (uint8_t *)ALIGN_UP((uintptr_t)reserved, (uintptr_t)HUGE_BYTES);
        n_head = (size_t)(data - reserved);
        n_tail = n_reserved - n_head - (size_t)length;
        if (mmap(data, n_bytes, protection, flags | MAP_FIXED, fd, 0) == MAP_FAILED) {
                int r = -errno;

                (void)munmap(reserved, n_reserved);
                return r;
        }
        if (n_head > 0)
                (void)munmap(reserved, n_head);
        if (n_tail > 0)
                (void)munmap(data + length, n_tail);
        *ret = data;
        return 0;
}

/* A mapping beyond the end of its file is a SIGBUS for later. 0 or a negative errno. */
static int maps_check_file(int fd, uint64_t n_bytes)
{
        struct stat st;

        if (fstat(fd, &st) < 0)
                return -errno;
        return S_ISREG(st.st_mode) && st.st_size >= 0 && (uint64_t)st.st_size >= n_bytes ? 0 : -EPROTO;
}

static int maps_map_as(int fd, uint64_t n_bytes, int protection, int flags, bool is_dumped, void **ret)
{
        size_t n;
        void *data = NULL;
        int r;

        if (n_bytes == 0)
                return -EINVAL;
        if (!checked_size(n_bytes, &n))
                return -ENOMEM;
        r = flags & MAP_ANONYMOUS ? 0 : maps_check_file(fd, n_bytes);
        if (r < 0)
                return r;
        if (n_bytes >= HUGE_BYTES) {
                r = maps_map_aligned(fd, n, protection, flags, &data);
                if (r < 0)
                        return r;
        } else {
                data = mmap(NULL, n, protection, flags, fd, 0);
                if (data == MAP_FAILED)
                        return -errno;
        }
        /* A dump of the program should not be as large as the store; where the kernel will not, it is only large. */
        if (!is_dumped)
                (void)madvise(data, n, MADV_DONTDUMP);
        atomic_fetch_add_explicit(&maps_n_mappings, 1, memory_order_relaxed);
        *ret = data;
        return 0;
}

int maps_map(int fd, uint64_t n_bytes, int protection, void **ret)
{
        return maps_map_as(fd, n_bytes, protection, MAP_SHARED, false, ret);
}

int maps_map_over(int fd, uint64_t n_bytes, int protection, const void *data)
{
        size_t n;
        int r;

        if (!checked_size(n_bytes, &n))
                return -ENOMEM;
        r = maps_check_file(fd, n_bytes);
        if (r < 0)
                return r;
        /* The kernel takes the old one away and puts the new one there under one lock: a reader finds either. */
        if (mmap((void *)(uintptr_t)data, n, protection, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
                return -errno;
        (void)madvise((void *)(uintptr_t)data, n, MADV_DONTDUMP);
        return 0;
}

void maps_unmap(const void *data, size_t n_bytes)
{
        int r = munmap((void *)(uintptr_t)data, n_bytes);

        assert(r == 0);
        (void)r;
        atomic_fetch_sub_explicit(&maps_n_mappings, 1, memory_order_relaxed);
}

/* -- the limit ---------------------------------------------------------------------------------------------------- */

static unsigned maps_read_sysctl(void)
{
        _cleanup_(cleanup_fd) int fd = open("/proc/sys/vm/max_map_count", O_RDONLY | O_CLOEXEC);
        char text[32];
        ssize_t n;
        unsigned long value;

        if (fd < 0)
                return MAPS_COUNT_DEFAULT;
        n = read(fd, text, sizeof(text) - 1);
        if (n <= 0)
                return MAPS_COUNT_DEFAULT;
        text[n] = '\0';
        value = strtoul(text, NULL, 10);
        return value == 0 ? MAPS_COUNT_DEFAULT : (unsigned)MIN(value, (unsigned long)INT32_MAX);
}

/* Lines of /proc/self/maps; 0 where it cannot be read. Bounded: a process cannot have more than the sysctl allowed. */
static unsigned maps_count_process(void)
{
        _cleanup_(cleanup_fd) int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
        unsigned n_lines = 0;
        char buffer[4096];
        ssize_t n;

        if (fd < 0)
                return 0;
        while ((n = read(fd, buffer, sizeof(buffer))) > 0)
                for (ssize_t i = 0; i < n; i++)
                        n_lines += buffer[i] == '\n';
        return n_lines;
}

static unsigned maps_limit(void)
{
        unsigned ours = maps_count(), present = maps_count_process();
        unsigned most = (unsigned)((uint64_t)maps_read_sysctl() * 9 / 10);
        unsigned others = present > ours ? present - ours : 0;

        return MAX(most > others ? most - others : 0, MAPS_COUNT_MIN);
}

/* -- the table ---------------------------------------------------------------------------------------------------- */

static MapsEntry **maps_bucket(const Maps *maps, uint64_t region_id, bool writable)
{
        uint64_t h = (region_id << 1 | writable) * UINT64_C(0x9e3779b97f4a7c15);

        return &maps->buckets[(h >> 32) & (maps->n_buckets - 1)];
}

static MapsEntry *maps_find_entry(const Maps *maps, uint64_t region_id, bool writable)
{
        for (MapsEntry *e = *maps_bucket(maps, region_id, writable); e; e = e->next)
                if (e->mapping.region_id == region_id && e->mapping.is_writable == writable)
                        return e;
        return NULL;
}

/* Twice the buckets. Without memory the chains only grow longer. */
static void maps_grow(Maps *maps)
{
        unsigned n_old = maps->n_buckets;
        MapsEntry **old = maps->buckets;
        MapsEntry **buckets = calloc((size_t)n_old * 2, sizeof(*buckets));

        if (!buckets)
                return;
        maps->buckets = buckets;
        maps->n_buckets = n_old * 2;
        for (unsigned i = 0; i < n_old; i++)
                for (MapsEntry *e = old[i], *next; e; e = next) {
                        MapsEntry **place = maps_bucket(maps, e->mapping.region_id, e->mapping.is_writable);

                        next = e->next;
                        e->next = *place;
                        *place = e;
                }
        free(old);
}

static void maps_insert(Maps *maps, MapsEntry *entry)
{
        MapsEntry **place;

        if (maps->n_entries >= maps->n_buckets && maps->n_buckets < 1u << 24)
                maps_grow(maps);
        place = maps_bucket(maps, entry->mapping.region_id, entry->mapping.is_writable);
        entry->next = *place;
        *place = entry;
        maps->n_entries++;
}

static void maps_stop_idling(Maps *maps, MapsEntry *entry)
{
        if (!list_is_linked(&entry->idle))
                return;
        maps->idle_bytes -= entry->mapping.n_bytes;
        maps->n_idle--;
        list_unlink(&entry->idle);
        list_unlink(&entry->owned);
}

static void maps_remove(Maps *maps, MapsEntry *entry)
{
        MapsEntry **place = maps_bucket(maps, entry->mapping.region_id, entry->mapping.is_writable);

        while (*place != entry)
                place = &(*place)->next;
        *place = entry->next;
        maps->n_entries--;
        maps_stop_idling(maps, entry);
}

/* Takes the longest idle out of the table, into @gone, until both bounds are kept. */
static void maps_shrink(Maps *maps, uint64_t idle_bytes_max, unsigned n_idle_max, List *gone)
{
        while (maps->idle_bytes > idle_bytes_max || maps->n_idle > n_idle_max) {
                MapsEntry *entry = LIST_ENTRY(list_peek_front(&maps->idle), MapsEntry, idle);

                maps_remove(maps, entry);
                list_push_back(gone, &entry->idle);
        }
}

/* Without the lock. */
static void maps_discard(List *gone)
{
        List *node;

        while ((node = list_take_front(gone))) {
                MapsEntry *entry = LIST_ENTRY(node, MapsEntry, idle);

                maps_unmap(entry->mapping.data, entry->mapping.n_bytes);
                free(entry);
        }
}

static void maps_ref_locked(Maps *maps, MapsEntry *entry)
{
        maps_stop_idling(maps, entry);
        atomic_fetch_add_explicit(&entry->n_references, 1, memory_order_relaxed);
}

static void maps_destroy(Maps *maps)
{
        assert(maps->n_entries == 0 && list_is_empty(&maps->idle));
        pthread_mutex_destroy(&maps->lock);
        free(maps->buckets);
        free(maps);
}

/* -- the cache ---------------------------------------------------------------------------------------------------- */

int maps_new(uint64_t idle_bytes_max, unsigned n_idle_max, Maps **ret)
{
        _cleanup_(cleanup_free) Maps *maps = calloc(1, sizeof(*maps));
        int r;

        if (!maps)
                return -ENOMEM;
        maps->buckets = calloc(MAPS_BUCKETS_MIN, sizeof(*maps->buckets));
        if (!maps->buckets)
                return -ENOMEM;
        r = pthread_mutex_init(&maps->lock, NULL);
        if (r != 0) {
                free(maps->buckets);
                return -r;
        }
        maps->n_buckets = MAPS_BUCKETS_MIN;
        maps->n_mappings_max = maps_limit();
        maps->idle_bytes_max = idle_bytes_max;
        maps->n_idle_max = n_idle_max;
        list_init(&maps->idle);
        list_init(&maps->owned);
        *ret = steal_ptr(&maps);
        return 0;
}

void maps_allow_dumps(Maps *maps)
{
        maps->is_dumped = true;
}

void maps_free(Maps *maps)
{
        List gone = LIST_INIT(gone);
        bool is_last;

        if (!maps)
                return;
        pthread_mutex_lock(&maps->lock);
        maps->is_closed = true;
        maps_shrink(maps, 0, 0, &gone);
        is_last = maps->n_entries == 0;
        pthread_mutex_unlock(&maps->lock);
        maps_discard(&gone);
        if (is_last)
                maps_destroy(maps);
}

Mapping *maps_find(Maps *maps, uint64_t region_id, bool writable)
{
        MapsEntry *entry;

        pthread_mutex_lock(&maps->lock);
        entry = maps_find_entry(maps, region_id, writable);
        if (entry)
                maps_ref_locked(maps, entry);
        pthread_mutex_unlock(&maps->lock);
        return entry ? &entry->mapping : NULL;
}

/* Room for one more mapping, at the cost of all that are idle. */
static bool maps_make_room(Maps *maps)
{
        List gone = LIST_INIT(gone);

        if (maps_count() < maps->n_mappings_max)
                return true;
        pthread_mutex_lock(&maps->lock);
        maps_shrink(maps, 0, 0, &gone);
        pthread_mutex_unlock(&maps->lock);
        maps_discard(&gone);
        return maps_count() < maps->n_mappings_max;
}

/* Of two threads that have mapped the same region one wins; the other's mapping goes. */
static MapsEntry *maps_insert_or_find(Maps *maps, MapsEntry *consume_entry)
{
        MapsEntry *found;

        pthread_mutex_lock(&maps->lock);
        found = maps_find_entry(maps, consume_entry->mapping.region_id, consume_entry->mapping.is_writable);
        if (!found) {
                maps_insert(maps, consume_entry);
                found = consume_entry;
        }
        maps_ref_locked(maps, found);
        pthread_mutex_unlock(&maps->lock);
        if (found != consume_entry) {
                maps_unmap(consume_entry->mapping.data, consume_entry->mapping.n_bytes);
                free(consume_entry);
        }
        return found;
}

int maps_open(Maps *maps, uint64_t region_id, int fd, uint64_t n_bytes, bool writable, bool populate, Mapping **ret)
{
        _cleanup_(cleanup_free) MapsEntry *entry = NULL;
        int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
        Mapping *found = maps_find(maps, region_id, writable);
        void *data;
        int r;

        if (!found) {
                if (!maps_make_room(maps))
                        return MAPS_E_TOO_MANY;
                /* First, as it knows whether there can be so much. */
                r = maps_map_as(fd, n_bytes, protection, MAP_SHARED, maps->is_dumped, &data);
                if (r < 0)
                        return r;
                entry = calloc(1, sizeof(*entry) + windows_count(n_bytes) * sizeof(Window));
                if (!entry) {
                        maps_unmap(data, (size_t)n_bytes);
                        return -ENOMEM;
                }
                list_init(&entry->idle);
                list_init(&entry->owned);
                entry->mapping = (Mapping){
                        .region_id = region_id,
                        .data = data,
                        .n_bytes = (size_t)n_bytes,
                        .is_writable = writable,
                        .windows = entry->windows,
                };
                found = &maps_insert_or_find(maps, steal_ptr(&entry))->mapping;
        }
        if (populate)
                windows_populate(found->data, found->n_bytes, writable);
        *ret = found;
        return 0;
}

int maps_add(Maps *maps, uint64_t region_id, int consume_fd, uint64_t n_bytes, bool writable, bool populate,
             Mapping **ret)
{
        _cleanup_(cleanup_fd) int fd = consume_fd;

        return maps_open(maps, region_id, fd, n_bytes, writable, populate, ret);
}

int maps_map_private(Maps *maps, int fd, uint64_t n_bytes, void **ret)
{
        if (!maps_make_room(maps))
                return MAPS_E_TOO_MANY;
        return maps_map_as(fd, n_bytes, PROT_READ | PROT_WRITE, fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_PRIVATE,
                           maps->is_dumped, ret);
}

void maps_ref(Maps *maps, Mapping *mapping)
{
        MapsEntry *entry = CONTAINER_OF(mapping, MapsEntry, mapping);
        unsigned before = atomic_fetch_add_explicit(&entry->n_references, 1, memory_order_relaxed);

        assert(before > 0);
        (void)before;
}

/* Takes one reference of several. False: it may be the last, or says what only the lock lets it write down. */
static bool maps_give_one_of_many(MapsEntry *entry, const MapsOwner *owner)
{
        unsigned n = atomic_load_explicit(&entry->n_references, memory_order_relaxed);

        assert(n > 0);
        if (owner->space && !atomic_load_explicit(&entry->is_owned, memory_order_relaxed))
                return false;
        /* Released: whoever gives back the last sees what was noted, and unmaps after all our loads. */
        while (n > 1)
                if (atomic_compare_exchange_weak_explicit(&entry->n_references, &n, n - 1, memory_order_release,
                                                          memory_order_relaxed))
                        return true;
        return false;
}

static void maps_give_back(Maps *maps, Mapping *mapping, bool drop, const MapsOwner *owner)
{
        MapsEntry *entry = CONTAINER_OF(mapping, MapsEntry, mapping);
        List gone = LIST_INIT(gone);
        bool is_last;

        if (drop)
                atomic_store_explicit(&entry->is_dropped, true, memory_order_relaxed);
        if (maps_give_one_of_many(entry, owner))
                return;
        pthread_mutex_lock(&maps->lock);
        /* The region is its object's for ever: of two that let go, one may not say whose. */
        if (owner->space) {
                entry->owner = *owner;
                atomic_store_explicit(&entry->is_owned, true, memory_order_relaxed);
        }
        if (atomic_fetch_sub_explicit(&entry->n_references, 1, memory_order_acq_rel) == 1) {
                if (maps->is_closed || atomic_load_explicit(&entry->is_dropped, memory_order_relaxed)) {
                        maps_remove(maps, entry);
                        list_push_back(&gone, &entry->idle);
                } else {
                        list_push_back(&maps->idle, &entry->idle);
                        if (entry->owner.space)
                                list_push_back(&maps->owned, &entry->owned);
                        maps->idle_bytes += entry->mapping.n_bytes;
                        maps->n_idle++;
                        maps_shrink(maps, maps->idle_bytes_max, maps->n_idle_max, &gone);
                }
        }
        is_last = maps->is_closed && maps->n_entries == 0;
        pthread_mutex_unlock(&maps->lock);
        maps_discard(&gone);
        if (is_last)
                maps_destroy(maps);
}

void maps_unref(Maps *maps, Mapping *mapping, bool drop)
{
        maps_give_back(maps, mapping, drop, &(MapsOwner){ 0 });
}

void maps_unref_owned(Maps *maps, Mapping *mapping, const MapsOwner *owner)
{
        maps_give_back(maps, mapping, false, owner);
}

void maps_sweep(Maps *maps, bool (*is_there)(MapsOwner *owner))
{
        List gone = LIST_INIT(gone), seen = LIST_INIT(seen);
        List *node;

        pthread_mutex_lock(&maps->lock);
        for (unsigned i = 0; i < MAPS_LOOKS_MAX && (node = list_take_front(&maps->owned)); i++) {
                MapsEntry *entry = LIST_ENTRY(node, MapsEntry, owned);

                if (is_there(&entry->owner)) {
                        list_push_back(&seen, &entry->owned);
                        continue;
                }
                maps_remove(maps, entry);
                list_push_back(&gone, &entry->idle);
        }
        list_splice_back(&maps->owned, &seen);
        pthread_mutex_unlock(&maps->lock);
        maps_discard(&gone);
}

bool maps_note_read(Maps *maps, uint64_t region_id)
{
        uint64_t h = region_id * UINT64_C(0x9e3779b97f4a7c15);

        return atomic_exchange_explicit(&maps->notes[(h >> 32) & (MAPS_NOTES - 1)], region_id, memory_order_relaxed) == region_id;
}
