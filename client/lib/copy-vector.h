/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The vector loops, once for each width of register: included by copy-kernels.c alone, which defines for each
 *
 *   VECTOR_NAME(what)       the functions' names
 *   VECTOR_TARGET           the attribute that lets the compiler use the registers
 *   VECTOR_COPY(to, from)   moves 128 bytes, at any alignment
 *   VECTOR_STREAM(to, from) the same past the caches; @to is a multiple of 64
 *   VECTOR_ZERO(to)         128 zeros past the caches; likewise
 *
 * In all of them the destination is brought to a multiple of 64 by a first store at the very beginning, which the loop
 * then overlaps: no loop over single bytes. What is shorter than 256 bytes, and the last few, are memcpy()'s.
 */
#ifndef VECTOR_NAME
#error "for copy-kernels.c"
#endif

/* The rest of a copy: one stream, fetched ahead as far as something is there. */
VECTOR_TARGET static void VECTOR_NAME(rest)(uint8_t *to, const uint8_t *from, size_t n_bytes, size_t n_ahead)
{
        size_t n_known = n_bytes + MIN(n_ahead, VECTOR_AHEAD_BYTES), at = 0;

        for (; at + 256 <= n_bytes && at + 256 + VECTOR_AHEAD_BYTES <= n_known; at += 256) {
                for (size_t line = 0; line < 256; line += 64)
                        __builtin_prefetch(from + at + VECTOR_AHEAD_BYTES + line);
                VECTOR_COPY(to + at, from + at);
                VECTOR_COPY(to + at + 128, from + at + 128);
        }
        for (; at + 128 <= n_bytes; at += 128)
                VECTOR_COPY(to + at, from + at);
        memcpy(to + at, from + at, n_bytes - at);
}

/* How far the destination is from a multiple of 64; the bytes up to there, and some more, are written. */
VECTOR_TARGET static inline size_t VECTOR_NAME(head)(uint8_t *to, const uint8_t *from)
{
        VECTOR_COPY(to, from);
        return -(uintptr_t)to & 63;
}

VECTOR_TARGET static void VECTOR_NAME(vector)(void *to, const void *from, size_t n_bytes, size_t n_ahead)
{
        size_t head;

        if (n_bytes < 256) {
                memcpy(to, from, n_bytes);
                return;
        }
        head = VECTOR_NAME(head)(to, from);
        VECTOR_NAME(rest)((uint8_t *)to + head, (const uint8_t *)from + head, n_bytes - head, n_ahead);
}

VECTOR_TARGET static void VECTOR_NAME(lanes)(void *begin_to, const void *begin_from, size_t n_bytes, size_t n_ahead)
{
        uint8_t *to = begin_to;
        const uint8_t *from = begin_from;
        size_t head;

        if (n_bytes < 256) {
                memcpy(to, from, n_bytes);
                return;
        }
        head = VECTOR_NAME(head)(to, from);
        to += head;
        from += head;
        n_bytes -= head;
        for (; n_bytes >= 8 * LANE_BYTES; to += 8 * LANE_BYTES, from += 8 * LANE_BYTES, n_bytes -= 8 * LANE_BYTES)
                for (size_t at = 0; at < LANE_BYTES; at += 128) {
                        VECTOR_COPY(to + at + 0 * LANE_BYTES, from + at + 0 * LANE_BYTES);
                        VECTOR_COPY(to + at + 1 * LANE_BYTES, from + at + 1 * LANE_BYTES);
                        VECTOR_COPY(to + at + 2 * LANE_BYTES, from + at + 2 * LANE_BYTES);
                        VECTOR_COPY(to + at + 3 * LANE_BYTES, from + at + 3 * LANE_BYTES);
                        VECTOR_COPY(to + at + 4 * LANE_BYTES, from + at + 4 * LANE_BYTES);
                        VECTOR_COPY(to + at + 5 * LANE_BYTES, from + at + 5 * LANE_BYTES);
                        VECTOR_COPY(to + at + 6 * LANE_BYTES, from + at + 6 * LANE_BYTES);
                        VECTOR_COPY(to + at + 7 * LANE_BYTES, from + at + 7 * LANE_BYTES);
                }
        /* Two in turn, and the next two fetched meanwhile where there are some: blocks of 8 to 32 KiB. */
        for (; n_bytes >= 2 * LANE_BYTES; to += 2 * LANE_BYTES, from += 2 * LANE_BYTES, n_bytes -= 2 * LANE_BYTES) {
                bool is_followed = n_bytes - 2 * LANE_BYTES + MIN(n_ahead, 2 * LANE_BYTES) >= 2 * LANE_BYTES;

                for (size_t at = 0; at < LANE_BYTES; at += 128) {
                        if (is_followed) {
                                __builtin_prefetch(from + at + 2 * LANE_BYTES);
                                __builtin_prefetch(from + at + 2 * LANE_BYTES + 64);
                                __builtin_prefetch(from + at + 3 * LANE_BYTES);
                                __builtin_prefetch(from + at + 3 * LANE_BYTES + 64);
                        }
                        VECTOR_COPY(to + at, from + at);
                        VECTOR_COPY(to + at + LANE_BYTES, from + at + LANE_BYTES);
                }
        }
        VECTOR_NAME(rest)(to, from, n_bytes, n_ahead);
}

VECTOR_TARGET static void VECTOR_NAME(stream)(void *begin_to, const void *begin_from, size_t n_bytes, size_t n_ahead)
{
        uint8_t *to = begin_to;
        const uint8_t *from = begin_from;
        size_t head;

        if (n_bytes < 256) {
                memcpy(to, from, n_bytes);
                return;
        }
        head = VECTOR_NAME(head)(to, from);
        to += head;
        from += head;
        n_bytes -= head;
        for (; n_bytes >= 4 * LANE_BYTES; to += 4 * LANE_BYTES, from += 4 * LANE_BYTES, n_bytes -= 4 * LANE_BYTES)
                for (size_t at = 0; at < LANE_BYTES; at += 128) {
                        VECTOR_STREAM(to + at + 0 * LANE_BYTES, from + at + 0 * LANE_BYTES);
                        VECTOR_STREAM(to + at + 1 * LANE_BYTES, from + at + 1 * LANE_BYTES);
                        VECTOR_STREAM(to + at + 2 * LANE_BYTES, from + at + 2 * LANE_BYTES);
                        VECTOR_STREAM(to + at + 3 * LANE_BYTES, from + at + 3 * LANE_BYTES);
                }
        /* Such stores keep no order with others: whoever is told that the bytes are there must find them. */
        _mm_sfence();
        VECTOR_NAME(rest)(to, from, n_bytes, n_ahead);
}

VECTOR_TARGET static void VECTOR_NAME(fill)(void *to, size_t n_bytes)
{
        size_t at = -(uintptr_t)to & 63;

        if (n_bytes < 256) {
                memset(to, 0, n_bytes);
                return;
        }
        memset(to, 0, at);
        for (; at + 128 <= n_bytes; at += 128)
                VECTOR_ZERO((uint8_t *)to + at);
        _mm_sfence();
        memset((uint8_t *)to + at, 0, n_bytes - at);
}
