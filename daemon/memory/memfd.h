/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one place where a memory file is made. Mode 0600 from before anybody else sees it, since a memfd is born 0777 (or
 * 0666), and its mode is what keeps another uid from reopening a read-only descriptor for writing. Never executable: a kernel
 * may be set to refuse, or to complain of, one that could be.
 *
 * Keeps no state: whether the kernel knows MFD_NOEXEC_SEAL is asked anew for each file, because only EINVAL says that
 * it does not, and a file that could not be made for want of descriptors says nothing about the flag.
 */
#ifndef DAEMON_MEMORY_MEMFD_H
#define DAEMON_MEMORY_MEMFD_H

/* 0 or a negative errno, with the name of the call in *@ret_failed_call. */
int memfd_make(const char *label, int *ret_fd, const char **ret_failed_call);

#endif
