// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// object is an object of the API as JSON.
type object = map[string]any

// apiServer keeps objects of all kinds in memory. It validates nothing, knows no rights, and removes an object at
// once, whatever its finalizers are.
type apiServer struct {
	listener net.Listener
	server   http.Server

	mu      sync.Mutex
	changed *sync.Cond
	// revision is the resourceVersion of the last change.
	revision int
	// objects by their path, without a subresource.
	objects map[string]object
	// events are all changes, in their order. A run has thousands, not millions.
	events []event
	down   bool
}

type event struct {
	kind     string // ADDED, MODIFIED or DELETED
	resource string // path of the collection in all namespaces
	revision int
	object   object
}

// ownAgent is the user agent of this program's own client.
const ownAgent = "dra-sanity"

func startAPIServer(ctx context.Context) (*apiServer, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &apiServer{listener: listener, objects: map[string]object{}}
	s.changed = sync.NewCond(&s.mu)
	s.server.Handler = http.HandlerFunc(s.serve)
	s.server.BaseContext = func(net.Listener) context.Context { return ctx }
	go func() { _ = s.server.Serve(listener) }()
	context.AfterFunc(ctx, func() { _ = s.server.Close(); s.changed.Broadcast() })
	return s, nil
}

func (s *apiServer) url() string { return "http://" + s.listener.Addr().String() }

// setDown lets each request fail, and ends all watches, until it is called with false.
func (s *apiServer) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
	s.changed.Broadcast()
}

func (s *apiServer) serve(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == "/version" {
		answer(w, http.StatusOK, object{"major": "1", "minor": "37", "gitVersion": "v1.37.0-dra-sanity"})
		return
	}
	own := req.UserAgent() == ownAgent
	s.mu.Lock()
	down := s.down && !own
	s.mu.Unlock()
	if down {
		fail(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "the API server is away")
		return
	}
	r, ok := parseRequest(req.URL.Path)
	if !ok {
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
		return
	}
	if r.resource == "" {
		discover(w, r)
		return
	}
	selected, err := selector(req)
	if err != nil {
		fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	if req.Method == http.MethodGet && req.URL.Query().Get("watch") != "" {
		s.watch(w, req, r, selected)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, 16<<20))
	if err != nil {
		fail(w, http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch req.Method {
	case http.MethodGet:
		if r.name != "" {
			s.get(w, r)
		} else {
			s.list(w, r, selected)
		}
	case http.MethodPost:
		s.create(w, r, body)
	case http.MethodPut:
		s.update(w, r, body)
	case http.MethodPatch:
		s.patch(w, r, req.Header.Get("Content-Type"), body)
	case http.MethodDelete:
		s.delete(w, r, selected, body)
	default:
		fail(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, req.Method)
	}
}

func (s *apiServer) get(w http.ResponseWriter, r request) {
	if o, ok := s.objects[r.key()]; ok {
		answer(w, http.StatusOK, o)
		return
	}
	notFound(w, r)
}

func (s *apiServer) list(w http.ResponseWriter, r request, selected func(object) bool) {
	items := []any{}
	for _, o := range s.selected(r, selected) {
		items = append(items, o)
	}
	answer(w, http.StatusOK, object{
		"kind": r.kind() + "List", "apiVersion": r.apiVersion, "items": items,
		"metadata": object{"resourceVersion": strconv.Itoa(s.revision)},
	})
}

// selected returns the objects of a collection in the order of their names. Callers hold the lock.
func (s *apiServer) selected(r request, selected func(object) bool) []object {
	var found []object
	prefix := r.collection() + "/"
	if r.namespace != "" {
		prefix += r.namespace + "/"
	}
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if strings.HasPrefix(key, prefix) && selected(s.objects[key]) {
			found = append(found, s.objects[key])
		}
	}
	return found
}

func (s *apiServer) create(w http.ResponseWriter, r request, body []byte) {
	o, err := decode(body)
	if err != nil {
		fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	if r.subresource != "" || strings.HasSuffix(r.resource, "reviews") {
		answer(w, http.StatusCreated, o) // reviews of tokens and rights, which grant nothing
		return
	}
	m := metadata(o)
	if text(m, "name") == "" {
		m["name"] = text(m, "generateName") + string(uuid.NewUUID())[:5]
	}
	r.name = text(m, "name")
	if _, exists := s.objects[r.key()]; exists {
		fail(w, http.StatusConflict, metav1.StatusReasonAlreadyExists, fmt.Sprintf("%s %q already exists", r.resource, r.name))
		return
	}
	m["uid"] = string(uuid.NewUUID())
	m["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	if r.namespace != "" {
		m["namespace"] = r.namespace
	}
	s.store(r, "ADDED", o)
	answer(w, http.StatusCreated, o)
}

func (s *apiServer) update(w http.ResponseWriter, r request, body []byte) {
	o, err := decode(body)
	if err != nil {
		fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	old, ok := s.objects[r.key()]
	if !ok {
		notFound(w, r)
		return
	}
	if version := text(metadata(o), "resourceVersion"); version != "" && version != text(metadata(old), "resourceVersion") {
		fail(w, http.StatusConflict, metav1.StatusReasonConflict, "the object has been modified; please apply your changes to the latest version and try again")
		return
	}
	s.replace(w, r, old, o)
}

func (s *apiServer) patch(w http.ResponseWriter, r request, contentType string, body []byte) {
	old, exists := s.objects[r.key()]
	apply := strings.HasPrefix(contentType, "application/apply-patch")
	if apply && !exists && r.subresource == "" {
		s.create(w, r, body)
		return
	}
	if !exists {
		notFound(w, r)
		return
	}
	before, err := json.Marshal(old)
	after := before
	if err == nil {
		switch {
		case strings.HasPrefix(contentType, "application/json-patch"):
			var patch jsonpatch.Patch
			if patch, err = jsonpatch.DecodePatch(body); err == nil {
				after, err = patch.Apply(before)
			}
		default:
			// Lists are replaced as a whole. That is enough for lists with one owner.
			if body, err = yaml.YAMLToJSON(body); err == nil {
				after, err = jsonpatch.MergePatch(before, body)
			}
		}
	}
	var o object
	if err == nil {
		err = json.Unmarshal(after, &o)
	}
	if err != nil {
		fail(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err.Error())
		return
	}
	s.replace(w, r, old, o)
}

// replace stores a new state of an object: its status if the request is for that, else the rest. An equal state
// changes nothing.
func (s *apiServer) replace(w http.ResponseWriter, r request, old, o object) {
	next := maps.Clone(o)
	if r.subresource == "status" {
		next = maps.Clone(old)
		next["status"] = o["status"]
	}
	m := maps.Clone(metadata(next))
	for _, field := range []string{"uid", "creationTimestamp", "name", "namespace", "resourceVersion"} {
		if value, ok := metadata(old)[field]; ok {
			m[field] = value
		}
	}
	next["metadata"] = m
	next["kind"], next["apiVersion"] = old["kind"], old["apiVersion"]
	if reflect.DeepEqual(next, old) {
		answer(w, http.StatusOK, old)
		return
	}
	s.store(r, "MODIFIED", next)
	answer(w, http.StatusOK, next)
}

func (s *apiServer) delete(w http.ResponseWriter, r request, selected func(object) bool, body []byte) {
	if r.name == "" {
		for _, o := range s.selected(r, selected) {
			one := r
			one.namespace, one.name = text(metadata(o), "namespace"), text(metadata(o), "name")
			s.remove(one)
		}
		answer(w, http.StatusOK, object{"kind": "Status", "apiVersion": "v1", "status": "Success"})
		return
	}
	o, ok := s.objects[r.key()]
	if !ok {
		notFound(w, r)
		return
	}
	var options metav1.DeleteOptions
	if len(body) > 0 {
		if decoded, err := decode(body); err == nil {
			_ = runtime.DefaultUnstructuredConverter.FromUnstructured(decoded, &options)
		}
	}
	if p := options.Preconditions; p != nil && p.UID != nil && string(*p.UID) != text(metadata(o), "uid") {
		fail(w, http.StatusConflict, metav1.StatusReasonConflict, "the UID in the precondition does not match")
		return
	}
	s.remove(r)
	answer(w, http.StatusOK, object{"kind": "Status", "apiVersion": "v1", "status": "Success"})
}

func (s *apiServer) remove(r request) {
	o := maps.Clone(s.objects[r.key()])
	o["metadata"] = maps.Clone(metadata(o))
	s.store(r, "DELETED", o)
}

// store makes a change known. Objects are not changed afterwards. Callers hold the lock.
func (s *apiServer) store(r request, kind string, o object) {
	s.revision++
	metadata(o)["resourceVersion"] = strconv.Itoa(s.revision)
	if kind == "DELETED" {
		delete(s.objects, r.key())
	} else {
		s.objects[r.key()] = o
	}
	s.events = append(s.events, event{kind: kind, resource: r.collection(), revision: s.revision, object: o})
	s.changed.Broadcast()
}

// decode reads an object in JSON, YAML or the protobuf of Kubernetes.
func decode(body []byte) (object, error) {
	if strings.HasPrefix(string(body), "k8s\x00") {
		typed, kind, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			return nil, err
		}
		o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		if err == nil {
			o["apiVersion"], o["kind"] = kind.ToAPIVersionAndKind()
		}
		return o, err
	}
	var o object
	if err := yaml.Unmarshal(body, &o); err != nil {
		return nil, err
	}
	if o == nil {
		return nil, fmt.Errorf("the request has no object")
	}
	return o, nil
}

// text returns the string at a path; "" if there is none.
func text(o object, path ...string) string {
	for _, field := range path[:len(path)-1] {
		o, _ = o[field].(object)
	}
	value, _ := o[path[len(path)-1]].(string)
	return value
}

// metadata returns the metadata of an object, which it gets if it has none.
func metadata(o object) object {
	m, ok := o["metadata"].(object)
	if !ok {
		m = object{}
		o["metadata"] = m
	}
	return m
}

func answer(w http.ResponseWriter, code int, o object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(o)
}

func fail(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	answer(w, code, object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": string(reason), "message": message})
}

func notFound(w http.ResponseWriter, r request) {
	fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("%s %q not found", r.resource, r.name))
}
