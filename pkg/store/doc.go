// Package store keeps one durable file per key: a payload of bytes under an
// envelope that names its format and carries a checksum of exactly those bytes.
//
// It knows neither what the payloads mean nor who holds which key. Out of its
// scope are locking (one writer per key at a time is the caller's duty),
// caching (every read reads the disk, because another process may have written
// it) and repair: a record that cannot be trusted is reported, and moved aside
// by [Store.Quarantine] when the caller says so.
//
// What a call wrote or deleted outlives the process at any instant, and a record
// is never torn. A power failure can undo the last renames and removals of a
// directory, because the directory itself is not synced: that would double the
// cost of a write, and records of an earlier boot are for the caller to tell
// from those of this one.
//
// A directory looks like this:
//
//	<key>.record                     a record
//	<key>.tmp                        a write in progress, or what a crash left of one
//	quarantine/<key>.record          a record that was not to be trusted
//	quarantine/<key>.record.reason   why
package store
