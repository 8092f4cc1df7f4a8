// SPDX-License-Identifier: Apache-2.0

package viewers

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
	authv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authclient "k8s.io/client-go/kubernetes/typed/authentication/v1"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// Limits of the requests that the API server gets to review tokens. Pods of other tenants
// may reach the agent's port and send tokens that they have made up.
const (
	// reviewsPerSecond and reviewBurst hold for one address.
	reviewsPerSecond, reviewBurst       = 1, 5
	allReviewsPerSecond, allReviewBurst = 2, 10
	reviewPatience                      = 5 * time.Second
	// acceptedFor is how long a token is accepted without another review.
	acceptedFor = time.Minute
	// maxAccepted and maxAddresses limit the remembered tokens and addresses.
	maxAccepted, maxAddresses = 64, 256
	maxTokenBytes             = 4 << 10
)

// Viewers are the users with a token of one service account.
type Viewers struct {
	// user is the user name of the account, and audience the audience of its tokens.
	user, audience string
	reviews        authclient.TokenReviewInterface
	// accepted holds the hashes of tokens, and addresses the limiter of each caller.
	accepted, addresses *cache.LRUExpireCache
	all                 *rate.Limiter
}

// New returns the viewers with the account, "namespace/name", whose tokens are for the
// agent in the pod.
func New(account, driver, pod string, reviews authclient.TokenReviewInterface) (*Viewers, error) {
	namespace, name, found := strings.Cut(account, "/")
	if !found || namespace == "" || name == "" || strings.Contains(name, "/") {
		return nil, fmt.Errorf("%q: %w: want namespace/name of a service account", account, gpu.ErrInvalid)
	}
	// Without the pod, the tokens of one agent would open all that have none.
	if pod == "" {
		return nil, fmt.Errorf("%w: the UID of the agent's pod is not set; viewers' tokens name it", gpu.ErrInvalid)
	}
	return &Viewers{
		user: "system:serviceaccount:" + namespace + ":" + name, audience: agentv1.Audience(driver, pod), reviews: reviews,
		accepted: cache.NewLRUExpireCache(maxAccepted), addresses: cache.NewLRUExpireCache(maxAddresses),
		all: rate.NewLimiter(allReviewsPerSecond, allReviewBurst),
	}, nil
}

// Only returns a handler that calls next for requests with the token of a viewer.
func (v *Viewers) Only(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := v.check(r.Context(), r.RemoteAddr, r.Header.Get(agentv1.TokenHeader))
		switch {
		case err == nil:
			next.ServeHTTP(w, r)
		case errors.Is(err, gpu.ErrPermission):
			http.Error(w, err.Error(), http.StatusUnauthorized)
		case errors.Is(err, gpu.ErrInUse):
			w.Header().Set("Retry-After", "1")
			http.Error(w, err.Error(), http.StatusTooManyRequests)
		default:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
}

// check returns an error unless the token is a viewer's. It wraps [gpu.ErrPermission] for
// another token, [gpu.ErrInUse] after too many requests, and [gpu.ErrNotReady] if the API
// server does not answer. No error contains the token.
func (v *Viewers) check(ctx context.Context, address, token string) error {
	if token == "" || len(token) > maxTokenBytes {
		return fmt.Errorf("%w: send a token of %s for the audience %s in the header %s", gpu.ErrPermission, v.user, v.audience, agentv1.TokenHeader)
	}
	hash := sha256.Sum256([]byte(token))
	if _, found := v.accepted.Get(hash); found {
		return nil
	}
	if !v.limiter(address).Allow() || !v.all.Allow() {
		return fmt.Errorf("review the token: %w: too many requests, try again", gpu.ErrInUse)
	}
	ctx, cancel := context.WithTimeout(ctx, reviewPatience)
	defer cancel()
	review, err := v.reviews.Create(ctx, &authv1.TokenReview{
		Spec: authv1.TokenReviewSpec{Token: token, Audiences: []string{v.audience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("review the token: %w: the API server does not review it: %s", gpu.ErrNotReady, strings.ReplaceAll(err.Error(), token, "…"))
	}
	status := review.Status
	if !status.Authenticated || status.User.Username != v.user || !slices.Contains(status.Audiences, v.audience) {
		return fmt.Errorf("%w: the token is not a valid one of %s for the audience %s", gpu.ErrPermission, v.user, v.audience)
	}
	v.accepted.Add(hash, struct{}{}, acceptedFor)
	return nil
}

// limiter returns the limiter of the caller's address. All requests through an API server
// have that server's address.
func (v *Viewers) limiter(address string) *rate.Limiter {
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	if known, ok := v.addresses.Get(address); ok {
		if limiter, ok := known.(*rate.Limiter); ok {
			return limiter
		}
	}
	limiter := rate.NewLimiter(reviewsPerSecond, reviewBurst)
	// A limiter that is idle for a minute is full again.
	v.addresses.Add(address, limiter, time.Minute)
	return limiter
}
