/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the user of this tool, rather than of the library, can do about a failure. The number alone does not tell: what
 * was tried, and what the library's sentence names, decide with it. Knows no connection, and prints nothing.
 */
#ifndef CTL_HINT_H
#define CTL_HINT_H

/* @what: as for ctl_fail(), as `put`; @sentence: folio_strerror_full(). NULL: there is nothing to say. */
const char *hint_find(int error, const char *what, const char *sentence);

#endif
