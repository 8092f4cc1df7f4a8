// SPDX-License-Identifier: Apache-2.0

package report

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

// healthRecord lists the events of one claim about one GPU since it was last healthy.
type healthRecord struct {
	Claim     types.UID `json:"claim"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	// GPU is the name of the whole GPU, also if the claim holds a part of it.
	GPU string `json:"gpu"`
	// Causes in the order of their reports.
	Causes []reportedCause `json:"causes"`
	// Created are the names of created events while others of the same occasion are not
	// created. They take no part in the rate limit again.
	Created []string `json:"created,omitempty"`
}

// reportedCause is a cause for which a GPU is unhealthy.
type reportedCause struct {
	// Cause is the value of the taint, and Since when the GPU has it.
	Cause string    `json:"value"`
	Since time.Time `json:"since"`
	// Reported is set once all events were created.
	Reported bool `json:"reported,omitempty"`
}

func (r healthRecord) key() string { return string(r.Claim) + "-" + r.GPU }

// isReported reports whether users have events about a cause.
func (r healthRecord) isReported() bool {
	return len(r.Causes) > 0 && len(r.Created) > 0 || slices.ContainsFunc(r.Causes, func(c reportedCause) bool { return c.Reported })
}

// find returns the index of a cause, or -1. Without a time, each report of the value counts.
func (r healthRecord) find(cause string, since time.Time) int {
	return slices.IndexFunc(r.Causes, func(c reportedCause) bool { return c.Cause == cause && (since.IsZero() || c.Since.Equal(since)) })
}

// healthRecords are the records on the disk. Both agents of a rolling update read and write them.
type healthRecords struct{ records Records }

// load returns all records by key. It deletes records that it cannot read, at the
// price of one more event.
func (r healthRecords) load(ctx context.Context) (map[string]healthRecord, error) {
	keys, err := r.records.Keys()
	if err != nil {
		return nil, err
	}
	all := map[string]healthRecord{}
	for _, key := range keys {
		var one healthRecord
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

func (r healthRecords) write(one healthRecord) error {
	payload, err := json.Marshal(one)
	if err != nil {
		return err
	}
	return r.records.Write(one.key(), payload)
}

func (r healthRecords) delete(one healthRecord) error { return r.records.Delete(one.key()) }
