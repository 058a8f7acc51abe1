/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boost.Interprocess: a managed segment with named entries, each of which points at its bytes. The address is NAME:MIB
 * of the segment; the first client makes it.
 */
#include "worker.h"

#include <boost/interprocess/managed_shared_memory.hpp>
#include <boost/interprocess/offset_ptr.hpp>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

namespace ipc = boost::interprocess;

namespace {

struct Entry {
        ipc::offset_ptr<void> data;
        std::size_t n_bytes;
};

ipc::managed_shared_memory *segment;

/* What throws here is told as any failure. */
template <typename Work> int guarded(Work work)
{
        try {
                return work();
        } catch (const std::exception &error) {
                return worker_fail("%s", error.what());
        }
}

int open_boost(const char *address, uint32_t)
{
        return guarded([address] {
                const std::string text = address;
                const std::size_t colon = text.find(':');

                segment = new ipc::managed_shared_memory(ipc::open_or_create, text.substr(0, colon).c_str(),
                                                         std::strtoull(text.c_str() + colon + 1, nullptr, 10) << 20);
                return 0;
        });
}

int put_boost(const char *key, const void *data, size_t n_bytes)
{
        return guarded([=] {
                void *bytes = segment->allocate(n_bytes);

                std::memcpy(bytes, data, n_bytes);
                segment->construct<Entry>(key)(Entry{ bytes, n_bytes });
                return 0;
        });
}

int get_boost(const char *key, size_t n_bytes)
{
        return guarded([=] {
                const Entry *entry = segment->find<Entry>(key).first;

                if (!entry || entry->n_bytes != n_bytes)
                        return worker_fail("it is not there");
                return worker_touch(entry->data.get(), n_bytes);
        });
}

int exists_boost(const char *key)
{
        return guarded([=] { return segment->find<Entry>(key).first ? 0 : worker_fail("it is not there"); });
}

int remove_boost(const char *key)
{
        return guarded([=] {
                Entry *entry = segment->find<Entry>(key).first;

                if (!entry)
                        return worker_fail("it is not there");
                segment->deallocate(entry->data.get());
                segment->destroy_ptr(entry);
                return 0;
        });
}

} /* namespace */

extern const struct worker_peer worker_peer = { open_boost, put_boost, get_boost, exists_boost, remove_boost, 0, nullptr };
