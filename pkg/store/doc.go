// SPDX-License-Identifier: Apache-2.0

// Package store keeps one file per key: a payload of bytes under an
// envelope that names its format and carries a checksum of exactly those bytes.
//
// It knows neither what the payloads mean nor who holds which key. Out of its
// scope are locking (one writer per key at a time is the caller's duty),
// caching (every read reads the disk, because another process may have written
// it) and repair: a record that cannot be trusted is reported, and moved aside
// by [Store.Quarantine] when the caller says so.
//
// What a call wrote or deleted outlives the process at any instant, and a record
// is never torn. What a power failure takes is for the caller to choose:
//
//   - with [Disk] nothing: a call returns once record and directory are on the
//     disk. That is for records that tell of what outlives the boot, such as a
//     MIG mode, and it takes two waits for the disk.
//   - with [Unsynced] it can take any record of this boot, or leave the empty
//     beginning of one, which [Open] removes. That is for records that are void
//     after a boot anyway. Nothing waits for the disk.
//
// Records of an earlier boot are for the caller to tell from those of this one.
//
// A directory looks like this:
//
//	<key>.record                     a record
//	<key>.tmp                        a write in progress, or what a crash left of one
//	quarantine/<key>.record          a record that was not to be trusted
//	quarantine/<key>.record.reason   why
package store
