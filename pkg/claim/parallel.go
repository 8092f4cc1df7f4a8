// SPDX-License-Identifier: Apache-2.0

package claim

import "sync"

// inParallel calls do for every number below n, at most limit of them at a time,
// and returns when all have returned. A panic of one is a panic of the caller.
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
