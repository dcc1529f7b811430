package clusteragent

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// secretAPI is a Kubernetes API with one Secret that has resource versions.
type secretAPI struct {
	mu      sync.Mutex
	secret  *corev1.Secret
	version int
	writes  int
}

func (a *secretAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	resource := schema.GroupResource{Resource: "secrets"}
	fail := func(err *apierrors.StatusError) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(err.ErrStatus.Code))
		_ = json.NewEncoder(w).Encode(err.ErrStatus)
	}
	const collection = "/api/v1/namespaces/cattle-system/secrets"
	var sent corev1.Secret
	_ = json.NewDecoder(r.Body).Decode(&sent)
	switch {
	case r.Method == http.MethodPost && r.URL.Path == collection && a.secret != nil:
		fail(apierrors.NewAlreadyExists(resource, identitySecret))
		return
	case r.Method == http.MethodPost && r.URL.Path == collection && sent.Name == identitySecret:
	case r.URL.Path != collection+"/"+identitySecret:
		fail(apierrors.NewForbidden(resource, r.URL.Path, nil))
		return
	case a.secret == nil:
		fail(apierrors.NewNotFound(resource, identitySecret))
		return
	case r.Method == http.MethodPut && sent.ResourceVersion != a.secret.ResourceVersion:
		fail(apierrors.NewConflict(resource, identitySecret, nil))
		return
	}
	if r.Method != http.MethodGet {
		a.version++
		a.writes++
		a.secret = &sent
		a.secret.ResourceVersion = strconv.Itoa(a.version)
	}
	a.secret.TypeMeta = metav1.TypeMeta{Kind: "Secret", APIVersion: "v1"}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(a.secret)
}

func TestSecretStore(t *testing.T) {
	api := &secretAPI{}
	server := httptest.NewServer(api)
	defer server.Close()
	s, err := newSecretStore(&rest.Config{Host: server.URL}, "cattle-system")
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.read(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	made := decodeIdentity(first)
	if !agentPattern.MatchString(made.Agent) || made.Credential != "" {
		t.Fatalf("made is %+v", made)
	}
	if second, err := s.read(t.Context(), ""); err != nil || decodeIdentity(second) != made || api.writes != 1 {
		t.Errorf("%+v, %v, %d writes", second, err, api.writes)
	}
	next := identity{Agent: made.Agent, Credential: "credential", ExpiresAt: time.Unix(2000, 0).UTC(), RenewAfter: time.Unix(1000, 0).UTC()}
	if err := s.write(t.Context(), first, next); err != nil {
		t.Fatal(err)
	}
	if err := s.write(t.Context(), first, next); !apierrors.IsConflict(err) {
		t.Errorf("a conflict was not detected: %v", err)
	}
	if stored, err := s.read(t.Context(), ""); err != nil || decodeIdentity(stored) != next {
		t.Errorf("%+v, %v", stored, err)
	}
	// The Secret was deleted: the agent keeps its ID.
	api.mu.Lock()
	api.secret = nil
	api.mu.Unlock()
	if again, err := s.read(t.Context(), made.Agent); err != nil || decodeIdentity(again) != (identity{Agent: made.Agent}) {
		t.Errorf("%+v, %v", again, err)
	}
}
