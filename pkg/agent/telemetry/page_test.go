// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"net/http/httptest"
	"testing"
	"testing/synctest"
)

func TestARequestThatEndsWhileItWaitsIsNotLoaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loads, answer := 0, make(chan struct{})
		page := Page(func(context.Context) int {
			loads++
			<-answer
			return loads
		})
		get := func(ctx context.Context) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			page.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/", nil))
			return w
		}
		go get(t.Context())
		synctest.Wait()
		gone, leave := context.WithCancel(t.Context())
		go get(gone)
		synctest.Wait()
		leave()
		synctest.Wait()
		close(answer)
		if w := get(t.Context()); loads != 2 || w.Body.String() != "2\n" {
			t.Errorf("%d loads, want one for each request that waits to the end; got %q", loads, w.Body)
		}
	})
}
