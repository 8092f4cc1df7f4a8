// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/plan"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
)

// recordCache holds the readable records as they were last read. The disk stays the truth:
// any process may write it. A watch lists the records that have changed. While the kernel
// has none, each use reads all records.
type recordCache struct {
	mu    sync.Mutex
	watch *store.Watch // nil before the first use, and if the kernel has none
	// known are in the order of compareRecords. Callers have it, so a change makes a copy.
	known []cachedRecord
	// unread are the records that could not be read. The next use reads them again.
	unread map[types.UID]bool
	// closed is set if there is no watch any more.
	closed bool
}

type cachedRecord struct {
	stamp  store.Stamp
	record *Record
}

func (r cachedRecord) uid() types.UID { return r.record.Claim.UID }

// load returns the readable records, ordered by namespace, name and UID. The caller must
// not change them.
func (c *recordCache) load(j *Journal) ([]cachedRecord, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var changed []string
	var err error
	if c.watch != nil {
		if changed, err = c.watch.Changed(); err != nil {
			_ = c.watch.Close() // nothing was written to it
			c.watch = nil
		}
	}
	if c.watch == nil {
		err = c.readAll(j)
		return c.known, err
	}
	c.known = slices.Clone(c.known)
	for claim := range c.unread {
		c.read(j, claim)
	}
	for _, key := range changed {
		c.read(j, types.UID(key))
	}
	return c.known, nil
}

// readAll reads all records, and starts a watch.
func (c *recordCache) readAll(j *Journal) error {
	// Before the records are read, so that it has all later changes.
	watch := c.newWatch(j)
	keys, err := j.Records.Keys()
	if err != nil {
		if watch != nil {
			_ = watch.Close()
		}
		return err
	}
	c.known, c.unread = nil, map[types.UID]bool{}
	for _, key := range keys {
		c.read(j, types.UID(key))
	}
	c.watch = watch
	return nil
}

// newWatch returns nil if the kernel has no watch left, or after the end of the watch.
func (c *recordCache) newWatch(j *Journal) *store.Watch {
	if c.closed {
		return nil
	}
	watch, err := j.Records.Watch()
	if err != nil {
		return nil
	}
	return watch
}

// close ends the watch. From then on each use reads all records.
func (c *recordCache) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.watch == nil {
		return nil
	}
	err := c.watch.Close()
	c.watch = nil
	return err
}

// read replaces the record of a claim by the one on the disk. The record is newer than its
// stamp if it changes meanwhile.
func (c *recordCache) read(j *Journal, claim types.UID) {
	c.known = slices.DeleteFunc(c.known, func(was cachedRecord) bool { return was.uid() == claim })
	delete(c.unread, claim)
	stamp, err := j.Records.Stamp(string(claim))
	if err == nil {
		now := cachedRecord{stamp: stamp}
		if now.record, err = j.Read(claim); now.record != nil {
			at, _ := slices.BinarySearchFunc(c.known, now, compareRecords)
			c.known = slices.Insert(c.known, at, now)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.unread[claim] = true
	}
}

func compareRecords(a, b cachedRecord) int { return compareRefs(a.record.Claim, b.record.Claim) }

func compareRefs(a, b plan.Ref) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}
