/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See ahead.h. An item takes longer than a miss divided by AHEAD_STEP, also the cheapest: farther apart nothing is
 * gained.
 */
#include "client/ahead.h"

#include "base/macro.h"

enum { AHEAD_STATIONS = 4, AHEAD_PLACES = AHEAD_STATIONS * AHEAD_STEP };

static_assert(IS_POWER_OF_TWO(AHEAD_PLACES), "places go round");

typedef struct Place {
        Key key;
        uint64_t hash;
        AheadName name;              /* space: NULL: nothing to be looked up, or not found */
} Place;

static void station_hash(Place *place, Client *client, const char *name)
{
        Key namespace;

        place->name.space = NULL;
        if (!name || !key_split_name(name, false, &namespace, &place->key))
                return;
        place->name.space = names_find(client, namespace);
        if (!place->name.space)
                return;
        if (!place->name.space->shared)
                place->name.space = NULL;
        else
                place->hash = lookup_hash_ahead(place->name.space, place->key);
}

static void station_find(Place *place, const Client *client)
{
        Lookup *look = &place->name.look;

        place->name.beacon = resume_beacon(client);
        if (lookup_find_hashed(place->name.space, place->key, place->hash, 0, look) != LOOKUP_FOUND ||
            look->copy.state == LAYOUT_SLOT_WRITING || look->copy.expires_ns != 0)
                place->name.space = NULL;
}

static const AheadName *found(const Place *place)
{
        return place->name.space ? &place->name : NULL;
}

void ahead_run(Client *client, const AheadUse *use, void *userdata, size_t begin, size_t end)
{
        Place places[AHEAD_PLACES];
        size_t n = end - begin;

        /*
         * At turn i item i is at the first station, i - AHEAD_STEP at the second, and so on: what is below 0 wraps, and
         * is not below n.
         */
        for (size_t i = 0; i < n + (AHEAD_STATIONS - 1) * AHEAD_STEP; i++) {
                size_t slot = i - AHEAD_STEP, find = slot - AHEAD_STEP, last = find - AHEAD_STEP;
                Place *place = &places[i & (AHEAD_PLACES - 1)];

                if (i < n)
                        station_hash(place, client, use->name(userdata, begin + i));
                place = &places[slot & (AHEAD_PLACES - 1)];
                if (slot < n && place->name.space)
                        lookup_slot_ahead(place->name.space, place->hash, use->is_to_pin);
                place = &places[find & (AHEAD_PLACES - 1)];
                if (find < n && place->name.space)
                        station_find(place, client);
                if (find < n && use->fetch)
                        use->fetch(userdata, begin + find, found(place));
                place = &places[last & (AHEAD_PLACES - 1)];
                if (last < n)
                        use->use(userdata, begin + last, found(place));
        }
}
