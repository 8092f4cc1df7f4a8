// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
)

const (
	// printedSuffix stands for the five random characters that the API server
	// ends a generated name with.
	printedSuffix = "xxxxx"
	// printedUID stands for the UID of the node, which only a cluster knows.
	printedUID = "00000000-0000-0000-0000-000000000000"
	// generatedBase is what the API server keeps of a name's generated part.
	generatedBase = 58
)

// Slices returns the ResourceSlices that the driver of a new node writes for the
// resources. They are recorded from upstream's ResourceSlice controller, which sets
// names, pool, counts and owner. Two values that differ between clusters are fixed:
// the random end of a name is "xxxxx", and the UID of the owning node is all zeros.
//
// It takes a second, for which that controller waits when it starts.
func Slices(ctx context.Context, driver, node string, resources resourceslice.DriverResources) ([]resourceapi.ResourceSlice, error) {
	want := 0
	for _, pool := range resources.Pools {
		want += len(pool.Slices)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, klog.Logger{}))
	defer cancel()
	recorder := recorder{created: make(chan resourceapi.ResourceSlice)}
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host:          "http://recorder",
		Transport:     recorder,
		ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"},
		QPS:           -1,
	})
	if err != nil {
		return nil, err
	}
	failed := make(chan error, 1)
	publisher, err := resourceslice.StartController(ctx, resourceslice.Options{
		DriverName: driver,
		KubeClient: client,
		Owner:      &resourceslice.Owner{APIVersion: "v1", Kind: "Node", Name: node, UID: printedUID},
		Resources:  &resources,
		ErrorHandler: func(_ context.Context, err error, msg string) {
			select {
			case failed <- fmt.Errorf("%s: %w", msg, err):
			default:
			}
		},
	})
	if err != nil {
		return nil, err
	}
	defer publisher.Stop()
	var written []resourceapi.ResourceSlice
	for len(written) < want {
		select {
		case slice := <-recorder.created:
			written = append(written, slice)
		case err := <-failed:
			return nil, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	slices.SortFunc(written, func(a, b resourceapi.ResourceSlice) int { return strings.Compare(a.Name, b.Name) })
	return written, nil
}

// WriteList writes the slices as a v1.List in JSON, as kubectl prints them and
// applies them.
func WriteList(w io.Writer, written []resourceapi.ResourceSlice) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           []resourceapi.ResourceSlice `json:"items"`
	}{metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, metav1.ListMeta{}, written})
}

// recorder implements the API server for a ResourceSlice controller on a node
// without slices: it lists no slices, reports no change, and accepts new slices.
type recorder struct {
	created chan resourceapi.ResourceSlice
}

// RoundTrip implements [http.RoundTripper].
func (r recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	switch {
	case request.Method == http.MethodPost:
		var slice resourceapi.ResourceSlice
		if err := json.NewDecoder(request.Body).Decode(&slice); err != nil {
			return nil, err
		}
		slice.Name = slice.GenerateName[:min(len(slice.GenerateName), generatedBase)] + printedSuffix
		select {
		case r.created <- slice:
		case <-request.Context().Done():
			return nil, request.Context().Err()
		}
		slice.ResourceVersion, slice.UID = "2", "recorded"
		return respond(request, http.StatusCreated, slice)
	case request.Method == http.MethodGet && request.URL.Query().Get("watch") != "":
		// A watch that requests the existing objects waits for this bookmark, which
		// marks their end.
		nothing := resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: "1",
			Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}}
		nothing.APIVersion, nothing.Kind = resourceapi.SchemeGroupVersion.String(), "ResourceSlice"
		response, err := respond(request, http.StatusOK, struct {
			Type   string                    `json:"type"`
			Object resourceapi.ResourceSlice `json:"object"`
		}{"BOOKMARK", nothing})
		if err != nil {
			return nil, err
		}
		response.Body = io.NopCloser(io.MultiReader(response.Body, untilDone{request.Context()}))
		return response, nil
	case request.Method == http.MethodGet:
		none := resourceapi.ResourceSliceList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
		none.APIVersion, none.Kind = resourceapi.SchemeGroupVersion.String(), "ResourceSliceList"
		return respond(request, http.StatusOK, none)
	}
	return nil, errors.New("a node without slices has none to change")
}

func respond(request *http.Request, status int, body any) (*http.Response, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		Request:    request,
		StatusCode: status,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(bytes.NewReader(text)),
	}, nil
}

// untilDone is a stream in which nothing happens until its context ends.
type untilDone struct{ ctx context.Context }

func (u untilDone) Read([]byte) (int, error) {
	<-u.ctx.Done()
	return 0, io.EOF
}
