// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// serveUI runs "kubectl gpu ui". It returns a function that returns the status and the text of
// a page, as a browser on this machine gets them.
func serveUI(t *testing.T, client kubernetes.Interface) func(page string) (int, string) {
	t.Helper()
	t.Setenv("KUBECONFIG", kubeconfig(t))
	out, in := io.Pipe()
	cmd := newCommand(genericiooptions.IOStreams{Out: in, ErrOut: t.Output()}, func(clientcmd.ClientConfig) (kubernetes.Interface, error) { return client, nil })
	cmd.SetArgs([]string{"ui"})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		err := cmd.ExecuteContext(ctx)
		_ = in.CloseWithError(err)
		ended <- err
	}()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "http://") {
	}
	address, err := url.Parse(lines.Text())
	require.NoError(t, err)
	browser := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort("127.0.0.1", address.Port()))
	}}}
	t.Cleanup(browser.CloseIdleConnections)
	return func(page string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address.Host+page, nil)
		require.NoError(t, err)
		request.AddCookie(&http.Cookie{Name: "kubectl-gpu", Value: address.Query().Get("token")})
		answer, err := browser.Do(request)
		require.NoError(t, err)
		defer answer.Body.Close() //nolint:errcheck // only read
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, string(text)
	}
}

func TestUI(t *testing.T) {
	client := server(shared(t))
	forbid(client, "pods", true)
	forbid(client, "deviceclasses", false)
	open := serveUI(t, client)
	for page, want := range map[string]struct {
		status int
		text   string
	}{
		"/":                  {http.StatusOK, "You have no right to list pods of all namespaces"},
		"/nodes/a":           {http.StatusOK, "gpu-18-00"},
		"/pods/default/half": {http.StatusForbidden, "permission denied: list deviceclasses"},
	} {
		if status, text := open(page); status != want.status || !strings.Contains(text, want.text) {
			t.Errorf("%s: status %d: %s", page, status, text)
		}
	}
}

func TestUIOfAClusterThatCannotBeRead(t *testing.T) {
	client := server(shared(t))
	forbid(client, "resourceslices", false)
	if status, text := serveUI(t, client)("/"); status != http.StatusServiceUnavailable || !strings.Contains(text, "list resourceslices.resource.k8s.io: permission denied") {
		t.Errorf("status %d: %s", status, text)
	}
}

func TestUIRefusesARefreshWithoutPause(t *testing.T) {
	if _, problems := run(t, server(shared(t)), "ui", "--refresh", "0s"); !strings.Contains(problems, "want at least 1s") {
		t.Errorf("got %q", problems)
	}
}

func TestUIWithoutACluster(t *testing.T) {
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	cmd := New(streams)
	cmd.SetArgs([]string{"ui"})
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "configuration") {
		t.Errorf("got %v", err)
	}
}
