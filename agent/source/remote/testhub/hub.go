// Package testhub is a hub for tests: it serves one plan Secret over real HTTPS, with the rights that a machine has. It stands in for
// faults that a real API server does not have on demand; what a real one does is tested in hub/integration.
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

	"github.com/drover-dev/drover/plans"
)

// Hub is the server and its Secret, named plan in namespace fleet-default, of UID uid-1.
type Hub struct {
	*httptest.Server
	t testing.TB

	mu       sync.Mutex
	secret   *corev1.Secret
	version  int
	watchers map[chan metav1.WatchEvent]bool
	requests []string
	fault    func(w http.ResponseWriter, r *http.Request) bool
	// BeforePut runs before a write is looked at, with the lock held.
	BeforePut func()
	// Opaque makes resource versions what they are by contract: words that nobody can compare.
	Opaque bool
}

const path = "/api/v1/namespaces/fleet-default/secrets"

// New starts a hub; it ends with the test.
func New(t testing.TB) *Hub { return NewOn(t, nil) }

// NewOn is New with a listener on 127.0.0.1, in another network for instance.
func NewOn(t testing.TB, listener net.Listener) *Hub {
	h := &Hub{t: t, version: 10, watchers: map[chan metav1.WatchEvent]bool{}}
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
		h.Server.Listener = listener
	}
	h.Server.StartTLS()
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
	})
	return h
}

// Change lets the hub write its Secret.
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
	next.ResourceVersion = h.word(h.version)
	h.secret = next
	h.send(metav1.WatchEvent{Type: "MODIFIED"}, next)
}

// word is a version as the hub tells it.
func (h *Hub) word(version int) string {
	if h.Opaque {
		return "v" + strconv.FormatInt(int64(version)*7919%10007, 36) + "-" + strconv.Itoa(version)
	}
	return strconv.Itoa(version)
}

// number is the version of a word.
func (h *Hub) number(word string) int {
	version, _ := strconv.Atoi(word[strings.LastIndexByte(word, '-')+1:])
	return version
}

// Restore puts the Secret back to what it was, under the version that the hub has in the backup: versions fall.
func (h *Hub) Restore(secret *corev1.Secret, version int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.version = version
	h.secret = secret.DeepCopy()
	h.secret.ResourceVersion = h.word(version)
	for watcher := range h.watchers {
		close(watcher)
		delete(h.watchers, watcher)
	}
}

func (h *Hub) send(event metav1.WatchEvent, object any) {
	raw, err := json.Marshal(object)
	if err != nil {
		h.t.Error(err)
	}
	event.Object.Raw = raw
	for watcher := range h.watchers {
		watcher <- event
	}
}

// EndWatches ends all watches, as a hub that restarts does.
func (h *Hub) EndWatches() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for watcher := range h.watchers {
		close(watcher)
		delete(h.watchers, watcher)
	}
}

// SetFault lets fault answer in place of the hub, if it returns true.
func (h *Hub) SetFault(fault func(w http.ResponseWriter, r *http.Request) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fault = fault
}

// Now is the Secret as it is.
func (h *Hub) Now() *corev1.Secret {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.secret
}

// Asked lists the requests since the last call.
func (h *Hub) Asked() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	asked := h.requests
	h.requests = nil
	return asked
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
		Answer(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
	case r.URL.Path == path && r.URL.Query().Get("fieldSelector") != "metadata.name=plan", r.URL.Path != path && r.URL.Path != path+"/plan",
		kind != "GET" && kind != "LIST" && kind != "WATCH" && kind != "PUT":
		Answer(w, http.StatusForbidden, metav1.StatusReasonForbidden, "not your right")
	case kind == "LIST":
		secret := h.Now()
		list := corev1.SecretList{TypeMeta: metav1.TypeMeta{Kind: "SecretList", APIVersion: "v1"}}
		list.ResourceVersion = secret.ResourceVersion
		list.Items = []corev1.Secret{*secret}
		Respond(w, http.StatusOK, list)
	case kind == "WATCH":
		h.watch(w, r)
	case kind == "PUT":
		h.put(w, r)
	default:
		Respond(w, http.StatusOK, h.Now())
	}
}

func (h *Hub) watch(w http.ResponseWriter, r *http.Request) {
	events := make(chan metav1.WatchEvent, 100)
	h.mu.Lock()
	from := h.number(r.URL.Query().Get("resourceVersion"))
	if from < h.version {
		raw, _ := json.Marshal(h.secret)
		event := metav1.WatchEvent{Type: "MODIFIED"}
		event.Object.Raw = raw
		events <- event
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
			if h.versionOf(event) <= from {
				continue // a watch begins after its version, however far ahead that lies
			}
			_ = json.NewEncoder(w).Encode(event)
			w.(http.Flusher).Flush()
		}
	}
}

func (h *Hub) versionOf(event metav1.WatchEvent) int {
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(event.Object.Raw, &object); err != nil {
		h.t.Error(err)
	}
	return h.number(object.ResourceVersion)
}

func (h *Hub) put(w http.ResponseWriter, r *http.Request) {
	var secret corev1.Secret
	if err := json.NewDecoder(r.Body).Decode(&secret); err != nil {
		Answer(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	size := 0
	for _, value := range secret.Data {
		size += len(value)
	}
	if size > corev1.MaxSecretSize {
		Answer(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "data: Too long: may not be more than 1048576 bytes")
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.BeforePut != nil {
		h.BeforePut()
	}
	if secret.ResourceVersion != h.secret.ResourceVersion || secret.UID != h.secret.UID {
		Answer(w, http.StatusConflict, metav1.StatusReasonConflict, "the object has been modified")
		return
	}
	h.ChangeLocked(func(next *corev1.Secret) {
		version := next.ResourceVersion
		*next = secret
		next.ResourceVersion = version
	})
	Respond(w, http.StatusOK, h.secret)
}

// Respond answers with an object.
func Respond(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}

// Answer answers as the API server does when it refuses.
func Answer(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	Respond(w, code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message})
}

// Connection writes a connection info file for the hub.
func (h *Hub) Connection(t testing.TB, dir, token string) string {
	t.Helper()
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw}))
	kubeconfig := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters:\n- name: agent\n  cluster:\n    server: %s\n    certificate-authority-data: %s\n"+
		"users:\n- name: agent\n  user:\n    token: %s\ncontexts:\n- name: agent\n  context: {cluster: agent, user: agent}\ncurrent-context: agent\n",
		h.URL, ca, token)
	return WriteConnection(t, dir, kubeconfig)
}

// WriteConnection writes a connection info file with a kubeconfig.
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

// Deliver delivers a plan that may be tried once, and gives its checksum.
func (h *Hub) Deliver(plan string) string {
	h.Change(func(s *corev1.Secret) { plans.Deliver(s.Data, []byte(plan), 1, 0) })
	return plans.Checksum([]byte(plan))
}
