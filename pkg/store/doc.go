// Package store keeps one durable file per key: a payload of bytes under an
// envelope that names its format and carries a checksum of exactly those bytes.
//
// It knows neither what the payloads mean nor who holds which key. Out of its
// scope are locking (one writer per key at a time is the caller's duty),
// caching (every read reads the disk, because another process may have written
// it) and repair: a record that cannot be trusted is reported, and moved aside
// by [Store.Quarantine] when the caller says so.
//
// A directory looks like this:
//
//	<key>.record                     a record
//	<key>.tmp                        a write in progress, or what a crash left of one
//	quarantine/<key>.record          a record that was not to be trusted
//	quarantine/<key>.record.reason   why
package store
