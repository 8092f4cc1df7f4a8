// SPDX-License-Identifier: Apache-2.0

// Package store keeps one file per key: a payload of bytes under an
// envelope that names its format and carries a checksum of exactly those bytes.
//
// The meaning of the payloads and of the keys is out of scope. So are
//
//   - locking: the caller ensures that a key has one writer at a time.
//   - caching: each read reads the disk, because another process may have written.
//   - repair: a damaged record is reported. The caller may move it aside with
//     [Store.Quarantine].
//
// A change is complete for other processes when the call returns, and a crash of the
// process never leaves part of a record. The caller chooses how much a power failure
// can destroy:
//
//   - [Disk]: nothing. A call returns once record and directory are on the disk,
//     which takes two waits for the disk. Use it for records of state that outlives
//     the boot, such as a MIG mode.
//   - [Unsynced]: any record of this boot. It may also leave an empty record, which
//     [Open] removes. No call waits for the disk. Use it for records that are not
//     valid after a boot.
//
// The caller must recognise records of an earlier boot.
//
// A directory looks like this:
//
//	<key>.record                     a record
//	<key>.tmp                        a write in progress, or one that crashed
//	quarantine/<key>.record          a damaged record
//	quarantine/<key>.record.reason   the reason for the quarantine
package store
