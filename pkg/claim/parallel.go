// SPDX-License-Identifier: Apache-2.0

package claim

import "sync"

// inParallel calls do for every number below n, and waits for all calls. At most
// limit calls run at a time. If a call panics, inParallel panics with the same
// value.
func inParallel(n, limit int, do func(i int)) {
	if n == 1 {
		do(0)
		return
	}
	var all sync.WaitGroup
	slots := make(chan struct{}, max(limit, 1))
	panics := make(chan any, n)
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					panics <- p
				}
				<-slots
			}()
			do(i)
		})
	}
	all.Wait()
	select {
	case p := <-panics:
		panic(p)
	default:
	}
}
