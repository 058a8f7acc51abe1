/* SPDX-License-Identifier: Apache-2.0 */
/*
 * iceoryx, which has no names to put values under: a put is a chunk that is loaned, written and published, a get is
 * what a subscriber of the same process takes, in that order. There is nothing to ask for or to delete. Its daemon is
 * where it always is: the address is a word that the names of this run begin with.
 */
#include "worker.h"

#include "iceoryx_hoofs/log/logmanager.hpp"
#include "iceoryx_posh/popo/untyped_publisher.hpp"
#include "iceoryx_posh/popo/untyped_subscriber.hpp"
#include "iceoryx_posh/runtime/posh_runtime.hpp"

#include <cstring>
#include <string>

namespace {

/* Fewer than a subscriber's queue holds. */
constexpr uint64_t N_QUEUED = 200;

iox::popo::UntypedPublisher *publisher;
iox::popo::UntypedSubscriber *subscriber;

int open_iceoryx(const char *address, uint32_t client)
{
        const std::string name = address + ("-" + std::to_string(client));
        const iox::capro::ServiceDescription service(
                "peers", "values", iox::capro::IdString_t(iox::cxx::TruncateToCapacity, name.c_str()));
        iox::popo::SubscriberOptions options;

        iox::log::LogManager::GetLogManager().SetDefaultLogLevel(iox::log::LogLevel::kWarn,
                                                                 iox::log::LogLevelOutput::kHideLogLevel);
        options.queueCapacity = 256U;
        iox::runtime::PoshRuntime::initRuntime(iox::RuntimeName_t(iox::cxx::TruncateToCapacity, name.c_str()));
        publisher = new iox::popo::UntypedPublisher(service);
        subscriber = new iox::popo::UntypedSubscriber(service, options);
        for (int i = 0; i < 1000000; i++)
                if (subscriber->getSubscriptionState() == iox::SubscribeState::SUBSCRIBED)
                        return 0;
        return worker_fail("it does not subscribe");
}

int put_iceoryx(const char *, const void *data, size_t n_bytes)
{
        int r = 0;

        publisher->loan(static_cast<uint32_t>(n_bytes))
                .and_then([&](void *&chunk) {
                        std::memcpy(chunk, data, n_bytes);
                        publisher->publish(chunk);
                })
                .or_else([&](auto &) { r = worker_fail("it has no chunk of that size left"); });
        return r;
}

int get_iceoryx(const char *, size_t n_bytes)
{
        int r = 0;

        subscriber->take()
                .and_then([&](const void *chunk) {
                        r = worker_touch(chunk, n_bytes);
                        subscriber->release(chunk);
                })
                .or_else([&](auto &) { r = worker_fail("nothing is there to be taken"); });
        return r;
}

} /* namespace */

extern const struct worker_peer worker_peer = { open_iceoryx, put_iceoryx, get_iceoryx, nullptr, nullptr, N_QUEUED, nullptr };
