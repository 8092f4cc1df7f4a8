// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
)

// admitViewers makes the API server accept the token "good" of viewers.
func (n *node) admitViewers(t *testing.T) {
	t.Helper()
	n.ViewerAccount, n.PodUID = "gpus/viewer", "uid-1"
	client, ok := n.client.(*fake.Clientset)
	if !ok {
		t.Fatalf("the client is a %T", n.client)
	}
	client.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authv1.TokenReview)
		review.Status = authv1.TokenReviewStatus{
			Authenticated: review.Spec.Token == "good", User: authv1.UserInfo{Username: "system:serviceaccount:gpus:viewer"}, Audiences: review.Spec.Audiences,
		}
		return true, review, nil
	})
}

// ask sends a viewer's request and returns the answer.
func ask(t *testing.T, handler http.Handler, path, token string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	r.Header.Set(agentv1.TokenHeader, token)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

func TestViewersReadTheFactsAboutTheNode(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.admitViewers(t)
	a := n.start(t)
	n.published(t)
	got := ask(t, a.handler(), agentv1.PathNode, "good")
	var node agentv1.Node
	if err := json.Unmarshal(got.Body.Bytes(), &node); err != nil || got.Code != http.StatusOK {
		t.Fatalf("%d %v: %s", got.Code, err, got.Body)
	}
	if len(node.GPUs) != 8 || node.DriverVersion.Value == "" || !node.CUDAVersion.IsKnown() || !node.FabricManager.Value || node.NUMANodes.Value != 2 {
		t.Errorf("got %s", got.Body)
	}
	g := node.GPUs[0]
	if g.Address != "0000:1b:00.0" || g.Persistence.Value != "on" || !g.NVSwitch.Value || g.FabricState.Value != "completed" || g.LinkWidth.Value != 16 || g.Clocks.Value.MaxSMMHz != 1980 || !slices.Equal(g.Clocks.Value.Reasons, []string{"gpu-idle"}) || !g.ACSRedirect.IsKnown() {
		t.Errorf("got %+v", g)
	}
	if g.PCIeSwitch != "0000:16:00.0" || len(g.Links) != 7 || g.Links["0000:df:00.0"] != 18 {
		t.Errorf("PCIe switch %q and NVLinks %v, want those of a DGX H100", g.PCIeSwitch, g.Links)
	}
	if got := ask(t, a.handler(), agentv1.PathNode, ""); got.Code != http.StatusUnauthorized {
		t.Errorf("without a token: %d", got.Code)
	}
}

func TestViewersReadWhatClaimsUse(t *testing.T) {
	t.Parallel()
	c := claimFor("one", "gpu-1b-00")
	n := newNode(t, c)
	n.admitViewers(t)
	a := n.start(t)
	a.publishes(t)
	a.mustPrepare(t, c)
	got := ask(t, a.handler(), agentv1.PathClaims, "good")
	var r agentv1.Report
	if err := json.Unmarshal(got.Body.Bytes(), &r); err != nil || got.Code != http.StatusOK {
		t.Fatalf("%d %v: %s", got.Code, err, got.Body)
	}
	if len(r.Rows) != 1 || r.Rows[0].Claim != "one" || r.Rows[0].Device != "gpu-1b-00" || *r.Rows[0].MemoryUsedBytes != 0 || *r.Rows[0].MemoryPromisedBytes != 80928<<20 {
		t.Errorf("got %s", got.Body)
	}
	if r.Foreign == nil || time.Since(r.Foreign.Checked) > time.Minute {
		t.Errorf("foreign processes are %+v, want those of now", r.Foreign)
	}
	if got := ask(t, a.handler(), agentv1.PathClaims, ""); got.Code != http.StatusUnauthorized {
		t.Errorf("without a token: %d", got.Code)
	}
}

func TestTheFactsAreServedOnlyIfViewersHaveAnAccount(t *testing.T) {
	t.Parallel()
	a := newNode(t).start(t)
	for _, path := range []string{agentv1.PathNode, agentv1.PathClaims} {
		if code, _ := get(t, a.agent, path); code != http.StatusNotFound {
			t.Errorf("%s without an account: %d", path, code)
		}
	}
}
