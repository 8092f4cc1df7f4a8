// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"io/fs"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/store"
)

// stampAge is the age from which the stamp of a record identifies it for ever: file
// systems count time in ticks of up to 10 ms, and a file that is replaced within one
// tick can have the stamp of the one before.
const stampAge = 50 * time.Millisecond

// recordCache holds records as they were last read. A record whose stamp has not
// changed is not read and decoded again. The disk stays the truth; any
// process may write it.
type recordCache struct {
	mu    sync.Mutex
	known map[types.UID]cachedRecord
}

type cachedRecord struct {
	stamp  store.Stamp
	record *Record // nil if it is gone; must not be changed
	err    error   // why it cannot be used
}

// load returns the records of the keys, and forgets all others.
func (c *recordCache) load(j *Journal, keys []string) map[types.UID]cachedRecord {
	c.mu.Lock()
	known := c.known
	c.mu.Unlock()
	seen, keep := make(map[types.UID]cachedRecord, len(keys)), make(map[types.UID]cachedRecord, len(keys))
	for _, key := range keys {
		claim := types.UID(key)
		stamp, err := j.Records.Stamp(key)
		if errors.Is(err, fs.ErrNotExist) {
			seen[claim] = cachedRecord{}
			continue
		}
		now, ok := known[claim]
		if err != nil || !ok || now.stamp != stamp {
			now = cachedRecord{stamp: stamp}
			now.record, now.err = j.Read(claim)
		}
		seen[claim] = now
		if err == nil && now.err == nil && time.Since(stamp.Modified()) > stampAge {
			keep[claim] = now
		}
	}
	c.mu.Lock()
	c.known = keep
	c.mu.Unlock()
	return seen
}
