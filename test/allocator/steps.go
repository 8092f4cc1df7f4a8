// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"context"
	"errors"
)

// ErrTooManySteps is the error of [Node.Allocate] for a search that its [Steps] end.
var ErrTooManySteps = errors.New("the search takes too many steps")

// Steps is a context that counts the steps of the allocator's search. After a number of
// steps it ends the search. In each step the allocator searches for one more device of a
// claim, or completes a request; it checks its context once in each.
type Steps struct {
	context.Context
	// Taken is the number of steps so far.
	Taken int
	limit int
}

// NewSteps returns a context for one search of at most limit steps.
func NewSteps(ctx context.Context, limit int) *Steps {
	return &Steps{Context: ctx, limit: limit}
}

// Err returns [ErrTooManySteps] if the search has taken more steps than its limit.
func (s *Steps) Err() error {
	if err := s.Context.Err(); err != nil {
		return err
	}
	if s.Taken++; s.Taken > s.limit {
		return ErrTooManySteps
	}
	return nil
}
