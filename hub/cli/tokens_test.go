package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/ownership"
)

// A name that is wrong leaves no other token valid.
func TestRevokeTokens(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := managementv3.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	token := &managementv3.Token{}
	token.Name = "token-b"
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(token).Build()
	var out bytes.Buffer
	err := (&tokenAccess{}).revoke(t.Context(), c, []string{"token-a", "token-b"}, &out)
	if err == nil || !strings.Contains(err.Error(), "token token-a not found") || out.String() != "token token-b revoked\n" {
		t.Errorf("got %q, %v", out.String(), err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(token), token); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the token is still there: %v", err)
	}
}

// ownTokenHub stands for a hub whose user has the token token-a, and no right to Tokens in its Kubernetes.
func ownTokenHub(t *testing.T) (*tokenAccess, client.WithWatch) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization") {
		case "GET /v3/tokens Bearer mine":
			_, _ = w.Write([]byte(`{"items": [{"metadata": {"name": "token-a"}, "spec": {"clusterName": "c-m-a"}}]}`))
		case "DELETE /v3/tokens/token-a Bearer mine":
			_, _ = w.Write([]byte(`{"name": "token-a"}`))
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`))
		}
	}))
	t.Cleanup(server.Close)
	raw, err := json.Marshal(settings.Settings{
		ServerURL: server.URL, CACerts: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	})
	if err != nil {
		t.Fatal(err)
	}
	published := &corev1.ConfigMap{Data: map[string]string{settings.DataKey: string(raw)}}
	published.Namespace, published.Name = settings.DefaultSystemNamespace, settings.ConfigMapName
	config := clientcmdapi.NewConfig()
	config.Clusters["hub"] = &clientcmdapi.Cluster{Server: "https://192.0.2.1:6443"}
	config.AuthInfos["me"] = &clientcmdapi.AuthInfo{Token: "mine"}
	config.Contexts["hub"], config.CurrentContext = &clientcmdapi.Context{Cluster: "hub", AuthInfo: "me"}, "hub"
	path := filepath.Join(t.TempDir(), "config")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{managementv3.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	forbidden := apierrors.NewForbidden(managementv3.GroupVersion.WithResource("tokens").GroupResource(), "", nil)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(published).WithInterceptorFuncs(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return forbidden
		},
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
			return forbidden
		},
	}).Build()
	return &tokenAccess{connection: connection{kubeconfig: path}, systemNamespace: settings.DefaultSystemNamespace}, c
}

// TestOwnTokens: users without a right to Tokens list and revoke their own at the hub.
func TestOwnTokens(t *testing.T) {
	where, c := ownTokenHub(t)
	if _, err := where.lines(t.Context(), c, client.ObjectKey{}); err == nil || !strings.Contains(err.Error(), "--own lists yours") {
		t.Errorf("the list of all: %v", err)
	}
	where.own = true
	lines, err := where.lines(t.Context(), c, client.ObjectKey{})
	if err != nil || len(lines) != 1 || lines[0].Name != "token-a" || lines[0].Cluster != "c-m-a" {
		t.Errorf("got %+v, %v", lines, err)
	}
	var out bytes.Buffer
	err = where.revoke(t.Context(), c, []string{"token-b", "token-a"}, &out)
	if err == nil || !strings.Contains(err.Error(), "token token-b not found: see \"hub tokens list --own\"") ||
		out.String() != "token token-a revoked\n" {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

// TestTokenClusters: a token is listed with the Cluster as users name it, for whoever may read that, and with the name of its management
// Cluster otherwise. A Token that Rancher has left is not listed.
func TestTokenClusters(t *testing.T) {
	scheme := fakeclient.Scheme(t, managementv3.AddToScheme)
	demo := client.ObjectKey{Namespace: "fleet", Name: "demo"}
	management := &managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c-m-a", Labels: ownership.Labels(demo)}}
	token := &managementv3.Token{ObjectMeta: metav1.ObjectMeta{Name: "token-a"}}
	token.Spec.ClusterName = "c-m-a"
	rancher := &managementv3.Token{ObjectMeta: metav1.ObjectMeta{Name: "kubeconfig-user-abcde"}}
	for want, forbidden := range map[string]bool{"fleet/demo": false, "": true} {
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(management, token, rancher).WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if _, clusters := list.(*managementv3.ClusterList); clusters && forbidden {
					return apierrors.NewForbidden(managementv3.GroupVersion.WithResource("clusters").GroupResource(), "", nil)
				}
				return c.List(ctx, list, opts...)
			},
		}).Build()
		lines, err := (&tokenAccess{}).lines(t.Context(), c, client.ObjectKey{})
		if err != nil || len(lines) != 1 || lines[0].NamespacedName != want || lines[0].Cluster != "c-m-a" {
			t.Errorf("got %+v, %v, want %q", lines, err, want)
		}
		shown := table(t, func(out *strings.Builder) error { return writeTokens(out, lines, noon) })
		if !strings.Contains(shown, cmp.Or(want, "c-m-a")) {
			t.Errorf("the table is\n%s", shown)
		}
	}
}
