// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// status404 returns a Status as an API server encodes it.
func status404(message, details string) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%q,"reason":"NotFound","details":%s,"code":404}`, message, details)
}

func TestOnlyA404AboutTheClaimMeansThatItIsGone(t *testing.T) {
	const about = `{"name":"one","group":"resource.k8s.io","kind":"resourceclaims"}`
	for name, c := range map[string]struct {
		contentType, body string
		want              bool
	}{
		"the claim is not found":                           {"application/json", status404(`resourceclaims.resource.k8s.io "one" not found`, about), true},
		"the API server does not serve the API":            {"text/plain; charset=utf-8", "404 page not found\n", false},
		"a load balancer's page":                           {"text/html", "<html><body><h1>404 Not Found</h1></body></html>", false},
		"a load balancer's page without a type":            {"", "<html><body><h1>404 Not Found</h1></body></html>", false},
		"a gateway's JSON":                                 {"application/json", `{"error":"no such route"}`, false},
		"nothing":                                          {"", "", false},
		"a Status without details":                         {"application/json", status404("not found", "null"), false},
		"a Status about a path":                            {"application/json", status404("the server could not find the requested resource", "{}"), false},
		"a Status about a path with the request's details": {"application/json", status404("the server could not find the requested resource (get resourceclaims.resource.k8s.io one)", about), false},
		"another claim is not found":                       {"application/json", status404(`resourceclaims.resource.k8s.io "two" not found`, `{"name":"two","group":"resource.k8s.io","kind":"resourceclaims"}`), false},
		"the namespace is not found":                       {"application/json", status404(`namespaces "one" not found`, `{"name":"one","kind":"namespaces"}`), false},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = []string{c.contentType}
				if c.contentType == "" {
					w.Header()["Content-Type"] = nil
				}
				w.WriteHeader(http.StatusNotFound)
				_, _ = w.Write([]byte(c.body))
			}))
			defer server.Close()
			client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
			must(t, err)
			_, err = client.ResourceV1().ResourceClaims("team").Get(t.Context(), "one", metav1.GetOptions{})
			if !apierrors.IsNotFound(err) {
				t.Fatalf("client-go makes %v of it, want what it takes for a 404", err)
			}
			if got := IsGone(err, "one"); got != c.want {
				t.Errorf("the claim is gone: %v, want %v (%v)", got, c.want, err)
			}
		})
	}
	written := apierrors.NewNotFound(resourceapi.Resource("resourceclaims"), "one")
	written.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeUnexpectedServerResponse, Message: "404"}}
	if IsGone(written, "one") {
		t.Error("a claim is gone by a Status that client-go has written and not the API server")
	}
	if IsGone(errors.New("connection refused"), "one") || IsGone(nil, "one") {
		t.Error("a claim is gone without a 404")
	}
}
