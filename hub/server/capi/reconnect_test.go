package capi

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/drover-dev/drover/hub/access/egress"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// TestReconnect: a cluster that is to be reconnected is dropped once, and reconciled at once.
func TestReconnect(t *testing.T) {
	r := &reconnector{probes: &probes{}, pending: sets.New[client.ObjectKey]()}
	key := client.ObjectKey{Namespace: "fleet", Name: "demo"}
	r.request(key) // a replica that does not lead has no connections
	if !r.keep(key) {
		t.Error("a cluster is dropped although none was connected")
	}
	queue := r.newQueue("test", workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer queue.ShutDown()
	next := func() {
		t.Helper()
		got := make(chan ctrl.Request, 1)
		go func() {
			request, _ := queue.Get()
			got <- request
		}()
		select {
		case request := <-got:
			if request.NamespacedName != key {
				t.Errorf("got %v", request)
			}
			queue.Done(request)
		case <-time.After(10 * time.Second):
			t.Fatal("it is not reconciled")
		}
	}
	r.request(key)
	next()
	if r.keep(key) {
		t.Error("it is not dropped")
	}
	next()
	if !r.keep(key) {
		t.Error("it is dropped twice")
	}
	r.refuse(key)
	next()
	for range 2 {
		if r.keep(key) {
			t.Error("a cluster that is refused is connected")
		}
	}
	r.refused[key] = time.Now()
	if !r.keep(key) {
		t.Error("it is refused for longer than it should be")
	}
}

// connectedByURL is a cache that is connected as egress has it connect.
type connectedByURL struct{ clustercache.ClusterCache }

func (connectedByURL) GetRESTConfig(context.Context, client.ObjectKey) (*rest.Config, error) {
	return &rest.Config{Host: "cluster1://demo.fleet", Timeout: 10 * time.Second}, nil
}

// TestRESTConfig: who connects to a cluster with a connection of its own gets server and credential, which upstream's cache does not have.
func TestRESTConfig(t *testing.T) {
	key := client.ObjectKey{Namespace: "fleet", Name: "demo"}
	connections := &Connections{ClusterCache: connectedByURL{}, clusters: egress.New()}
	if _, err := connections.GetRESTConfig(t.Context(), key); !errors.Is(err, clustercache.ErrClusterNotConnected) {
		t.Errorf("before the kubeconfig was read: %v", err)
	}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	const kubeconfig = `{apiVersion: v1, kind: Config, current-context: x, contexts: [{name: x, context: {cluster: x, user: x}}],
  clusters: [{name: x, cluster: {server: "https://10.0.0.1:6443"}}], users: [{name: x, user: {token: hush}}]}`
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name + "-kubeconfig"},
		Data: map[string][]byte{"value": []byte(kubeconfig)}}
	from := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, corev1.AddToScheme, clusterv1.AddToScheme)).
		WithObjects(cluster, secret).Build()
	if err := connections.clusters.Reader(from).Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
		t.Fatal(err)
	}
	got, err := connections.GetRESTConfig(t.Context(), key)
	if err != nil || got.Host != "https://10.0.0.1:6443" || got.BearerToken != "hush" || got.Timeout != 10*time.Second {
		t.Errorf("got %v, %v", got, err)
	}
}
