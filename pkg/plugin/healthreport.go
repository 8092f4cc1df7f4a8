// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// Records stores records beyond the end of the agent. Delete succeeds if there is no record.
type Records interface {
	Keys() ([]string, error)
	Read(key string) ([]byte, error)
	Write(key string, payload []byte) error
	Delete(key string) error
}

// report is what was told to the users of a claim about one GPU since it was last healthy.
type report struct {
	Claim     types.UID `json:"claim"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	// GPU is the name of the whole GPU, also if the claim holds a part of it.
	GPU string `json:"gpu"`
	// Causes in the order of their reports.
	Causes []reported `json:"causes"`
}

// reported is a cause for which a GPU is unhealthy.
type reported struct {
	// Value of the taint, and Since when it has it.
	Value string    `json:"value"`
	Since time.Time `json:"since"`
	// Told is set once all events were created.
	Told bool `json:"told,omitempty"`
}

func (r report) key() string { return string(r.Claim) + "-" + r.GPU }

// isTold reports whether users have events about the GPU.
func (r report) isTold() bool {
	return slices.ContainsFunc(r.Causes, func(c reported) bool { return c.Told })
}

// find returns the index of a cause, or -1. Without a time, each report of the value counts.
func (r report) find(value string, since time.Time) int {
	return slices.IndexFunc(r.Causes, func(c reported) bool { return c.Value == value && (since.IsZero() || c.Since.Equal(since)) })
}

// reports are the reports on the disk. Both agents of a rolling update read and write them.
type reports struct{ records Records }

// load returns all reports by key. It deletes records that it cannot read: their events have
// names that do not change, and are created again.
func (r reports) load(ctx context.Context) (map[string]report, error) {
	keys, err := r.records.Keys()
	if err != nil {
		return nil, err
	}
	all := map[string]report{}
	for _, key := range keys {
		var one report
		payload, err := r.records.Read(key)
		if err == nil {
			err = json.Unmarshal(payload, &one)
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot read the record of an event, deleting it", "record", key)
			if err := r.records.Delete(key); err != nil {
				return nil, err
			}
			continue
		}
		all[key] = one
	}
	return all, nil
}

func (r reports) write(of report) error {
	payload, err := json.Marshal(of)
	if err != nil {
		return err
	}
	return r.records.Write(of.key(), payload)
}

func (r reports) delete(of report) error { return r.records.Delete(of.key()) }
