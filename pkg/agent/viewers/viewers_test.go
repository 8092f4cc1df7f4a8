// SPDX-License-Identifier: Apache-2.0

package viewers

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

const viewerName = "system:serviceaccount:gpus:viewer"

// reviewing returns the client of an API server that accepts the tokens, and the number of
// reviews. The tokens are by their user and audience.
func reviewing(tokens map[string][2]string) (*fake.Clientset, *atomic.Int32) {
	client, reviews := fake.NewClientset(), &atomic.Int32{}
	client.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		reviews.Add(1)
		review := action.(clienttesting.CreateAction).GetObject().(*authv1.TokenReview)
		if review.Spec.Token == "server away" {
			return true, nil, errors.New("no connection for server away")
		}
		known, found := tokens[review.Spec.Token]
		// As the API server: the token must have one of the requested audiences.
		if found && slices.Contains(review.Spec.Audiences, known[1]) {
			review.Status = authv1.TokenReviewStatus{Authenticated: true, User: authv1.UserInfo{Username: known[0]}, Audiences: []string{known[1]}}
		}
		return true, review, nil
	})
	return client, reviews
}

func newTestViewers(t *testing.T, client *fake.Clientset) *Viewers {
	t.Helper()
	v, err := New("gpus/viewer", "gpu.nvidia.com", "uid-1", client.AuthenticationV1().TokenReviews())
	require.NoError(t, err)
	return v
}

// ask sends a request from an address and returns the answer.
func ask(t *testing.T, handler http.Handler, from, token string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, agentv1.PathNode, nil)
	r.RemoteAddr = from + ":4711"
	if token != "" {
		r.Header.Set(agentv1.TokenHeader, token)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

func secret(http.ResponseWriter, *http.Request) {}

func TestOnlyTokensOfTheViewersAccountAreAccepted(t *testing.T) {
	t.Parallel()
	const audience = "agent.gpu.nvidia.com/uid-1"
	client, reviews := reviewing(map[string][2]string{
		"good":           {viewerName, audience},
		"of API server":  {viewerName, "https://kubernetes.default.svc"},
		"other account":  {"system:serviceaccount:gpus:other", audience},
		"other place":    {"system:serviceaccount:tenant:viewer", audience},
		"another driver": {viewerName, "agent.gpu.example.com/uid-1"},
		"another agent":  {viewerName, "agent.gpu.nvidia.com/uid-2"},
		"all agents":     {viewerName, "agent.gpu.nvidia.com"},
	})
	handler := newTestViewers(t, client).Only(http.HandlerFunc(secret))
	for i, tc := range []struct {
		token string
		want  int
	}{
		{"good", http.StatusOK},
		{"", http.StatusUnauthorized},
		{"expired or made up", http.StatusUnauthorized},
		{"of API server", http.StatusUnauthorized},
		{"other account", http.StatusUnauthorized},
		{"other place", http.StatusUnauthorized},
		{"another driver", http.StatusUnauthorized},
		{"another agent", http.StatusUnauthorized},
		{"all agents", http.StatusUnauthorized},
		{strings.Repeat("long", maxTokenBytes), http.StatusUnauthorized},
		{"server away", http.StatusServiceUnavailable},
	} {
		got := ask(t, handler, fmt.Sprintf("10.0.0.%d", i), tc.token)
		if got.Code != tc.want {
			t.Errorf("token %.20q: %d %s, want %d", tc.token, got.Code, got.Body, tc.want)
		}
		if tc.token != "" && strings.Contains(got.Body.String(), tc.token) {
			t.Errorf("the answer repeats the token: %s", got.Body)
		}
	}
	before := reviews.Load()
	for range 100 {
		if got := ask(t, handler, "10.0.0.1", "good"); got.Code != http.StatusOK {
			t.Fatalf("a token that was accepted: %d %s", got.Code, got.Body)
		}
	}
	if got := reviews.Load(); got != before {
		t.Errorf("a token that was accepted is reviewed %d times more", got-before)
	}
}

// An authenticator that knows no audiences accepts a token for the API server and names
// none. An example is a webhook.
func TestATokenThatIsReviewedWithoutItsAudienceIsRefused(t *testing.T) {
	t.Parallel()
	for name, audiences := range map[string][]string{"no audience": nil, "that of the API server": {"https://kubernetes.default.svc"}} {
		client := fake.NewClientset()
		client.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
			review := action.(clienttesting.CreateAction).GetObject().(*authv1.TokenReview)
			review.Status = authv1.TokenReviewStatus{Authenticated: true, User: authv1.UserInfo{Username: viewerName}, Audiences: audiences}
			return true, review, nil
		})
		if got := ask(t, newTestViewers(t, client).Only(http.HandlerFunc(secret)), "10.0.0.1", "token"); got.Code != http.StatusUnauthorized {
			t.Errorf("%s: %d %s, want %d", name, got.Code, got.Body, http.StatusUnauthorized)
		}
	}
}

func TestATokenIsReviewedAgainAfterAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newTestViewers(t, fake.NewClientset())
		tokens := map[string][2]string{"good": {viewerName, v.audience}}
		client, _ := reviewing(tokens)
		v.reviews = client.AuthenticationV1().TokenReviews()
		handler := v.Only(http.HandlerFunc(secret))
		for _, step := range []struct {
			after time.Duration
			want  int
		}{{0, http.StatusOK}, {59 * time.Second, http.StatusOK}, {2 * time.Second, http.StatusUnauthorized}} {
			time.Sleep(step.after) //nolint:forbidigo // the clock of the test's bubble
			if got := ask(t, handler, "10.0.0.1", "good"); got.Code != step.want {
				t.Errorf("after %s more: %d %s, want %d", step.after, got.Code, got.Body, step.want)
			}
			delete(tokens, "good") // the token expires, or the account is deleted
		}
	})
}

func TestAFloodOfTokensReachesTheAPIServerInSmallNumbers(t *testing.T) {
	t.Parallel()
	client, reviews := reviewing(map[string][2]string{"good": {viewerName, "agent.gpu.nvidia.com/uid-1"}})
	handler := newTestViewers(t, client).Only(http.HandlerFunc(secret))
	for i := range 1000 {
		ask(t, handler, "10.0.0.1", fmt.Sprint("made up ", i))
	}
	if got := ask(t, handler, "10.0.0.1", "made up"); got.Code != http.StatusTooManyRequests || got.Header().Get("Retry-After") == "" {
		t.Errorf("one more: %d", got.Code)
	}
	if got := reviews.Load(); got > reviewBurst+reviewsPerSecond*10 {
		t.Errorf("%d reviews, want about %d", got, reviewBurst)
	}
	// Another address has its own limit.
	if got := ask(t, handler, "10.0.0.2", "good"); got.Code != http.StatusOK {
		t.Errorf("a viewer is refused during a flood from another address: %d %s", got.Code, got.Body)
	}
	for i := range 1000 {
		ask(t, handler, fmt.Sprintf("10.0.%d.%d", 1+i/250, i%250), "made up")
	}
	if got := reviews.Load(); got > allReviewBurst+allReviewsPerSecond*10 {
		t.Errorf("%d reviews for many addresses, want about %d", got, allReviewBurst)
	}
}

func TestViewersHaveAnAccountAndAPod(t *testing.T) {
	t.Parallel()
	for _, account := range []string{"viewer", "/viewer", "gpus/", "gpus/viewer/1"} {
		if _, err := New(account, "gpu.nvidia.com", "uid-1", nil); err == nil {
			t.Errorf("%q is accepted", account)
		}
	}
	if _, err := New("gpus/viewer", "gpu.nvidia.com", "", nil); err == nil {
		t.Error("an agent without the UID of its pod has viewers: their tokens would open all such agents")
	}
}
