package remote

import (
	"encoding/json"
	"fmt"
	"log/slog"
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

// hub serves one Secret over real HTTP with the rights that a machine has. It stands in for faults that a real API server does not have
// on demand; what a real one does is tested in hub/integration.
type hub struct {
	*httptest.Server
	t *testing.T

	mu       sync.Mutex
	secret   *corev1.Secret
	version  int
	watchers map[chan metav1.WatchEvent]bool
	requests []string
	// fault answers in place of the hub, if it returns true.
	fault func(w http.ResponseWriter, r *http.Request) bool
	// beforePut runs before a write is looked at, with the lock held.
	beforePut func()
}

const path = "/api/v1/namespaces/fleet-default/secrets"

func newHub(t *testing.T) *hub {
	h := &hub{t: t, version: 10, watchers: map[chan metav1.WatchEvent]bool{}}
	h.secret = &corev1.Secret{
		TypeMeta: metav1.TypeMeta{Kind: "Secret", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: "plan", Namespace: "fleet-default", UID: "uid-1", ResourceVersion: "10",
			Labels: map[string]string{"rke.cattle.io/cluster-name": "c"}, Annotations: map[string]string{"rke.cattle.io/joined-to": "x"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "rke.cattle.io/v1", Kind: "RKEBootstrap", Name: "b", UID: "u"}}},
		Type: "rke.cattle.io/machine-plan",
		Data: map[string][]byte{},
	}
	h.Server = httptest.NewTLSServer(h)
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
	})
	return h
}

// change lets the hub write its Secret.
func (h *hub) change(do func(*corev1.Secret)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changeLocked(do)
}

func (h *hub) changeLocked(do func(*corev1.Secret)) {
	next := h.secret.DeepCopy()
	do(next)
	h.version++
	next.ResourceVersion = strconv.Itoa(h.version)
	h.secret = next
	h.send(metav1.WatchEvent{Type: "MODIFIED"}, next)
}

func (h *hub) send(event metav1.WatchEvent, object any) {
	raw, err := json.Marshal(object)
	if err != nil {
		h.t.Error(err)
	}
	event.Object.Raw = raw
	for watcher := range h.watchers {
		watcher <- event
	}
}

// endWatches ends all watches, as a hub that restarts does.
func (h *hub) endWatches() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for watcher := range h.watchers {
		close(watcher)
		delete(h.watchers, watcher)
	}
}

func (h *hub) setFault(fault func(w http.ResponseWriter, r *http.Request) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fault = fault
}

func (h *hub) now() *corev1.Secret {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.secret
}

// asked lists the requests since the last call.
func (h *hub) asked() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	asked := h.requests
	h.requests = nil
	return asked
}

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
		answer(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
	case r.URL.Path == path && r.URL.Query().Get("fieldSelector") != "metadata.name=plan", r.URL.Path != path && r.URL.Path != path+"/plan",
		kind != "GET" && kind != "LIST" && kind != "WATCH" && kind != "PUT":
		answer(w, http.StatusForbidden, metav1.StatusReasonForbidden, "not your right")
	case kind == "LIST":
		secret := h.now()
		list := corev1.SecretList{TypeMeta: metav1.TypeMeta{Kind: "SecretList", APIVersion: "v1"}}
		list.ResourceVersion = secret.ResourceVersion
		list.Items = []corev1.Secret{*secret}
		respond(w, http.StatusOK, list)
	case kind == "WATCH":
		h.watch(w, r)
	case kind == "PUT":
		h.put(w, r)
	default:
		respond(w, http.StatusOK, h.now())
	}
}

func (h *hub) watch(w http.ResponseWriter, r *http.Request) {
	events := make(chan metav1.WatchEvent, 100)
	h.mu.Lock()
	if from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion")); from < h.version {
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
			_ = json.NewEncoder(w).Encode(event)
			w.(http.Flusher).Flush()
		}
	}
}

func (h *hub) put(w http.ResponseWriter, r *http.Request) {
	var secret corev1.Secret
	if err := json.NewDecoder(r.Body).Decode(&secret); err != nil {
		answer(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.beforePut != nil {
		h.beforePut()
	}
	if secret.ResourceVersion != h.secret.ResourceVersion || secret.UID != h.secret.UID {
		answer(w, http.StatusConflict, metav1.StatusReasonConflict, "the object has been modified")
		return
	}
	h.changeLocked(func(next *corev1.Secret) {
		version := next.ResourceVersion
		*next = secret
		next.ResourceVersion = version
	})
	respond(w, http.StatusOK, h.secret)
}

func respond(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}

func answer(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	respond(w, code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message})
}

// connection writes a connection info file for the hub.
func (h *hub) connection(t *testing.T, dir, token string) string {
	t.Helper()
	ca := pemOf(h.Certificate())
	kubeconfig := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters:\n- name: agent\n  cluster:\n    server: %s\n    certificate-authority-data: %s\n"+
		"users:\n- name: agent\n  user:\n    token: %s\ncontexts:\n- name: agent\n  context: {cluster: agent, user: agent}\ncurrent-context: agent\n",
		h.URL, ca, token)
	return writeConnection(t, dir, kubeconfig)
}

func writeConnection(t *testing.T, dir, kubeconfig string) string {
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

// newSource starts a source.
func newSource(t *testing.T, h *hub) *Source {
	t.Helper()
	s, err := New(h.connection(t, t.TempDir(), "token"), true, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	start(t, s)
	return s
}

func start(t *testing.T, s *Source) {
	t.Helper()
	done := make(chan struct{})
	ctx := t.Context()
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	t.Cleanup(func() { <-done })
}

func deliver(h *hub, plan string) string {
	h.change(func(s *corev1.Secret) { plans.Deliver(s.Data, []byte(plan), 1, 0) })
	return plans.Checksum([]byte(plan))
}

func has(asked []string, kinds ...string) bool {
	text := " " + strings.Join(asked, " ") + " "
	for _, kind := range kinds {
		if !strings.Contains(text, " "+kind+" ") {
			return false
		}
	}
	return true
}
