// Package testhub is a hub for tests: it serves one plan Secret over HTTPS, with the permissions of a machine. It can fail in ways that a
// real API server cannot be made to; the tests with a real one are in hub/integration.
package testhub

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/drover-dev/drover/plans"
)

// Hub is a server with the Secret fleet-default/plan of UID uid-1. Requests need the bearer token "token".
type Hub struct {
	*httptest.Server

	mu       sync.Mutex
	secret   *corev1.Secret
	version  int
	watchers map[chan event]bool
	requests []string
	fault    func(w http.ResponseWriter, r *http.Request) bool
	// BeforePut, if it is set, is called before each write, with the lock held: see ChangeLocked.
	BeforePut func()
	// Opaque makes resource versions strings that cannot be compared as numbers, as the contract of the API allows.
	Opaque bool
}

// event is a change of the Secret.
type event struct {
	version int
	secret  *corev1.Secret
}

const path = "/api/v1/namespaces/fleet-default/secrets"

// New starts a hub, which is closed with the test.
func New(t testing.TB) *Hub { return NewOn(t, nil) }

// NewOn is New with a listener on 127.0.0.1, for example in another network namespace or a Listener; nil creates one.
func NewOn(t testing.TB, listener net.Listener) *Hub {
	h := &Hub{version: 10, watchers: map[chan event]bool{}}
	h.secret = &corev1.Secret{
		TypeMeta: metav1.TypeMeta{Kind: "Secret", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: "plan", Namespace: "fleet-default", UID: "uid-1", ResourceVersion: "10",
			Labels: map[string]string{"rke.cattle.io/cluster-name": "c"}, Annotations: map[string]string{"rke.cattle.io/joined-to": "x"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "rke.cattle.io/v1", Kind: "RKEBootstrap", Name: "b", UID: "u"}}},
		Type: "rke.cattle.io/machine-plan",
		Data: map[string][]byte{},
	}
	h.Server = httptest.NewUnstartedServer(h)
	if listener != nil {
		_ = h.Server.Listener.Close()
		h.Server.Listener = listener
	}
	h.Server.StartTLS()
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
	})
	return h
}

// Change changes the Secret as the hub does.
func (h *Hub) Change(do func(*corev1.Secret)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ChangeLocked(do)
}

// ChangeLocked is Change for BeforePut.
func (h *Hub) ChangeLocked(do func(*corev1.Secret)) {
	next := h.secret.DeepCopy()
	do(next)
	h.version++
	next.ResourceVersion = h.format(h.version)
	h.secret = next
	for watcher := range h.watchers {
		watcher <- event{h.version, next}
	}
}

// format returns a version as a resource version.
func (h *Hub) format(version int) string {
	if h.Opaque {
		return "v" + strconv.FormatInt(int64(version)*7919%10007, 36) + "-" + strconv.Itoa(version)
	}
	return strconv.Itoa(version)
}

// parse is the inverse of format.
func parse(resourceVersion string) int {
	version, _ := strconv.Atoi(resourceVersion[strings.LastIndexByte(resourceVersion, '-')+1:])
	return version
}

// Restore replaces the Secret by a backup, and the version of the hub by a lower one, and ends all watches.
func (h *Hub) Restore(secret *corev1.Secret, version int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.version = version
	h.secret = secret.DeepCopy()
	h.secret.ResourceVersion = h.format(version)
	h.endWatchesLocked()
}

// EndWatches ends all watches, as a hub that restarts does.
func (h *Hub) EndWatches() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endWatchesLocked()
}

func (h *Hub) endWatchesLocked() {
	for watcher := range h.watchers {
		close(watcher)
	}
	clear(h.watchers)
}

// SetFault lets fault handle requests before the hub does; it returns true for those that it has responded to. nil removes it.
func (h *Hub) SetFault(fault func(w http.ResponseWriter, r *http.Request) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fault = fault
}

// Now returns the current Secret, which must not be changed.
func (h *Hub) Now() *corev1.Secret {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.secret
}

// Requests returns the requests since the last call: their methods, or LIST and WATCH.
func (h *Hub) Requests() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	requests := h.requests
	h.requests = nil
	return requests
}

// ServeHTTP implements http.Handler.
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	kind := r.Method
	if r.Method == http.MethodGet && r.URL.Path == path {
		kind = "LIST"
		if r.URL.Query().Get("watch") != "" {
			kind = "WATCH"
		}
	}
	h.requests = append(h.requests, kind)
	fault := h.fault
	h.mu.Unlock()
	switch {
	case fault != nil && fault(w, r):
	case r.Header.Get("Authorization") != "Bearer token":
		WriteStatus(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
	case r.URL.Path == path && r.URL.Query().Get("fieldSelector") != "metadata.name=plan", r.URL.Path != path && r.URL.Path != path+"/plan",
		kind != "GET" && kind != "LIST" && kind != "WATCH" && kind != "PUT":
		WriteStatus(w, http.StatusForbidden, metav1.StatusReasonForbidden, "forbidden")
	case kind == "LIST":
		secret := h.Now()
		list := corev1.SecretList{TypeMeta: metav1.TypeMeta{Kind: "SecretList", APIVersion: "v1"}}
		list.ResourceVersion = secret.ResourceVersion
		list.Items = []corev1.Secret{*secret}
		WriteJSON(w, http.StatusOK, list)
	case kind == "WATCH":
		h.watch(w, r)
	case kind == "PUT":
		h.put(w, r)
	default:
		WriteJSON(w, http.StatusOK, h.Now())
	}
}

func (h *Hub) watch(w http.ResponseWriter, r *http.Request) {
	events := make(chan event, 100)
	h.mu.Lock()
	from := parse(r.URL.Query().Get("resourceVersion"))
	if from < h.version {
		events <- event{h.version, h.secret}
	}
	h.watchers[events] = true
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watchers, events)
	}()
	w.Header().Set("Content-Type", "application/json")
	w.(http.Flusher).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case event, open := <-events:
			if !open {
				return
			}
			if event.version <= from {
				continue // a watch starts after its version, even if that is ahead of the hub
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"type": watch.Modified, "object": event.secret})
			w.(http.Flusher).Flush()
		}
	}
}

func (h *Hub) put(w http.ResponseWriter, r *http.Request) {
	var secret corev1.Secret
	if err := json.NewDecoder(r.Body).Decode(&secret); err != nil {
		WriteStatus(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	size := 0
	for _, value := range secret.Data {
		size += len(value)
	}
	if size > corev1.MaxSecretSize {
		WriteStatus(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "data: Too long: may not be more than 1048576 bytes")
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.BeforePut != nil {
		h.BeforePut()
	}
	if secret.ResourceVersion != h.secret.ResourceVersion || secret.UID != h.secret.UID {
		WriteStatus(w, http.StatusConflict, metav1.StatusReasonConflict, "the object has been modified")
		return
	}
	h.ChangeLocked(func(next *corev1.Secret) {
		version := next.ResourceVersion
		*next = secret
		next.ResourceVersion = version
	})
	WriteJSON(w, http.StatusOK, h.secret)
}

// WriteJSON writes an object as a response.
func WriteJSON(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}

// WriteStatus writes a failure as the API server does.
func WriteStatus(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	WriteJSON(w, code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message})
}

// Connection writes connection info for the hub to dir and returns its path.
func (h *Hub) Connection(t testing.TB, dir, token string) string {
	t.Helper()
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw}))
	kubeconfig := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters:\n- name: agent\n  cluster:\n    server: %s\n    "+
		"certificate-authority-data: %s\n"+
		"users:\n- name: agent\n  user:\n    token: %s\ncontexts:\n- name: agent\n  context: {cluster: agent, user: agent}\ncurrent-context: "+
		"agent\n",
		h.URL, ca, token)
	return WriteConnection(t, dir, kubeconfig)
}

// WriteConnection writes connection info with a kubeconfig to dir and returns its path.
func WriteConnection(t testing.TB, dir, kubeconfig string) string {
	t.Helper()
	raw, err := json.Marshal(map[string]string{"kubeConfig": kubeconfig, "namespace": "fleet-default", "secretName": "plan"})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "rancher2_connection_info.json")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Deliver delivers a plan with one attempt, and returns its checksum.
func (h *Hub) Deliver(plan string) string {
	h.Change(func(s *corev1.Secret) { plans.Deliver(s.Data, []byte(plan), 1, 0) })
	return plans.Checksum([]byte(plan))
}
