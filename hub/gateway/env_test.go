package gateway

import (
	"context"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/gateway/agentsession"
	"github.com/drover-dev/drover/hub/gateway/downloads"
	"github.com/drover-dev/drover/hub/gateway/servingcert"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/server/settings"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const planNamespace = "ns"

// fakeAPI has the ServiceAccount and the RKEBootstrap of every machine there may be. The token of a machine is the name of its plan Secret.
type fakeAPI struct {
	client.Client
	// review is asked whether a token is valid; nil for always.
	review func(token string) bool
}

func (f *fakeAPI) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	review := object.(*authenticationv1.TokenReview)
	token := review.Spec.Token
	review.Status.Authenticated = f.review == nil || f.review(token)
	review.Status.User = authenticationv1.UserInfo{Username: "system:serviceaccount:" + planNamespace + ":" + token, UID: token}
	return nil
}

func (f *fakeAPI) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.SetResourceVersion("1")
	return nil
}

func (f *fakeAPI) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	switch object := object.(type) {
	case *metav1.PartialObjectMetadata:
		object.Namespace, object.Name, object.UID = key.Namespace, key.Name, types.UID(key.Name)
		owner := fixtureBootstrap(key.Name[:len(key.Name)-len("-machine-plan")])
		object.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, rkev1.GroupVersion.WithKind("RKEBootstrap"))}
	case *rkev1.RKEBootstrap:
		fixtureBootstrap(key.Name).DeepCopyInto(object)
	}
	return nil
}

// fixtureBootstrap is the RKEBootstrap of a Machine of the same name.
func fixtureBootstrap(name string) *rkev1.RKEBootstrap {
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "m"}}
	return &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{
		Namespace: planNamespace, Name: name, UID: types.UID("b-" + name),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(machine, clusterv1.GroupVersion.WithKind("Machine"))},
	}}
}

var testSettings = settings.Settings{ServerURL: "https://hub.example:8443", CACerts: []byte("PEM\n")}

// newTestServer has a fakeAPI, and caches that are not filled.
func newTestServer(t testing.TB, dir string) *Server {
	t.Helper()
	api := &fakeAPI{}
	files, err := downloads.New(dir, testSettings)
	must(t, err)
	s, err := New(Options{
		Settings: testSettings, Identity: &servingcert.Identity{}, Files: files, Client: api, APIReader: api,
		RestConfig: &rest.Config{Host: "https://127.0.0.1:1"}, Logger: logr.Discard(),
		Cache: struct{ cache.Informers }{}, Issuer: &tokens.Issuer{}, Tunnels: struct{ agentsession.Tunnels }{},
	})
	must(t, err)
	// Without filled caches there are no slots, and the tokens of the fakeAPI are names.
	s.machines.unknownSlots, s.machines.check = nil, nil
	return s
}

func get(s *Server, path string) *httptest.ResponseRecorder { return getAs(s, "", path, "") }

// getAs gets a path with a bearer token and an Accept header; empty for none.
func getAs(s *Server, token, path, accept string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest("GET", path, nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	s.handler.ServeHTTP(w, r)
	return w
}
