package preterminatehook

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// connectionTo is a connection to one server.
type connectionTo struct {
	clustercache.ClusterCache
	config *rest.Config
}

func (c connectionTo) GetRESTConfig(context.Context, client.ObjectKey) (*rest.Config, error) {
	return c.config, nil
}

// TestNodesOfHostileCluster: the Nodes are read by another connection, and no more of an answer than a cluster may have.
func TestNodesOfHostileCluster(t *testing.T) {
	const list = `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[`
	node := `{"metadata":{"name":"a","labels":{"x":"` + strings.Repeat("y", 100_000) + `"}}},`
	for _, test := range []struct {
		name, first, repeat string
		times               int // 0 for without an end
		want                string
		atMost              int64 // bytes that are read, with what the connection buffers
	}{
		{name: "two Nodes", first: list + `{"metadata":{"name":"a","labels":{"x":"y"}}},`, repeat: `{"metadata":{"name":"b"}}]}`, times: 1},
		{name: "no list", repeat: `{}`, times: 1, want: "no list of Nodes"},
		{name: "empty Nodes", first: list, repeat: `{},`, times: 100_000, want: "more than 50000 Nodes"},
		{name: "a Node without an end", first: list + `{"metadata":{"name":"`, repeat: "x", want: "longer than the hub reads", atMost: 8 << 20},
		{name: "Nodes without an end", first: list, repeat: node, want: "longer than 65536 KiB", atMost: 72 << 20},
		{name: "an error without an end", first: "no", repeat: "x", want: "longer than 1024 KiB", atMost: 8 << 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			var written atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if test.first == "no" {
					w.WriteHeader(http.StatusForbidden)
				}
				_, _ = w.Write([]byte(test.first))
				chunk := strings.Repeat(test.repeat, max(1, 1<<16/len(test.repeat)))
				if test.times > 0 {
					chunk = strings.Repeat(test.repeat, test.times)
				}
				for {
					n, err := w.Write([]byte(chunk))
					if written.Add(int64(n)); err != nil || test.times > 0 {
						return
					}
				}
			}))
			defer server.Close()
			r := &Reconciler{ClusterCache: connectionTo{config: &rest.Config{Host: server.URL}}}
			nodes, err := r.nodesByNewConnection(t.Context(), client.ObjectKey{Namespace: "ns", Name: "c"})
			if test.want == "" {
				if err != nil || len(nodes) != 2 || fmt.Sprint(nodes[0].Name, nodes[0].Labels, nodes[1].Name) != "amap[x:y]b" {
					t.Errorf("got %v, %v", nodes, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%d Nodes and %v, want %q", len(nodes), err, test.want)
			}
			if test.atMost > 0 && written.Load() > test.atMost {
				t.Errorf("%d MiB were read", written.Load()>>20)
			}
		})
	}
}

// busyServer asks for another attempt, each time late.
type busyServer struct{}

func (busyServer) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case <-time.After(4 * time.Second):
	}
	return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"5"}}, Body: http.NoBody}, nil
}

// TestNodesOfSlowCluster: a cluster that asks for one attempt after the other does not hold up the removal of members for others.
func TestNodesOfSlowCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := &rest.Config{Host: "https://10.0.0.1:6443", WrapTransport: func(http.RoundTripper) http.RoundTripper { return busyServer{} }}
		r := &Reconciler{ClusterCache: connectionTo{config: config}}
		begin := time.Now()
		_, err := r.nodesByNewConnection(t.Context(), client.ObjectKey{Namespace: "ns", Name: "c"})
		if took := time.Since(begin); err == nil || took > nodesTimeout {
			t.Errorf("%v after %s", err, took)
		}
	})
}

// TestAbandoned: a control plane of which all machines are being deleted is not abandoned while a MachineDeployment asks for others with
// etcd, which could not be created yet.
func TestAbandoned(t *testing.T) {
	scheme := fakeclient.Scheme(t, corev1.AddToScheme, clusterv1.AddToScheme, rkev1.AddToScheme)
	deployment := func(role string, replicas int32, change func(*clusterv1.MachineDeployment)) *clusterv1.MachineDeployment {
		d := &clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "d", Labels: map[string]string{
			clusterv1.ClusterNameLabel: "c"}}}
		d.Spec.ClusterName, d.Spec.Replicas = "c", &replicas
		d.Spec.Template.Labels = map[string]string{role: "true"}
		if change != nil {
			change(d)
		}
		return d
	}
	for name, tc := range map[string]struct {
		deployment *clusterv1.MachineDeployment
		expected   bool
	}{
		"etcd":           {deployment(rkev1.EtcdRoleLabel, 1, nil), true},
		"scaled to none": {deployment(rkev1.EtcdRoleLabel, 0, nil), false},
		"workers":        {deployment(rkev1.WorkerRoleLabel, 3, nil), false},
		"of another cluster": {deployment(rkev1.EtcdRoleLabel, 1, func(d *clusterv1.MachineDeployment) {
			d.Labels[clusterv1.ClusterNameLabel] = "d"
		}), false},
		"being deleted": {deployment(rkev1.EtcdRoleLabel, 1, func(d *clusterv1.MachineDeployment) {
			d.Finalizers, d.DeletionTimestamp = []string{"example.com/f"}, &metav1.Time{Time: now}
		}), false},
	} {
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(tc.deployment).Build()
		deleted := &metav1.Time{Time: now.Add(-time.Hour)}
		s := &scope{key: client.ObjectKey{Namespace: "ns", Name: "c"}, machines: []*member{{bootstrap: &rkev1.RKEBootstrap{},
			machine: &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "a", DeletionTimestamp: deleted,
				Labels: map[string]string{rkev1.EtcdRoleLabel: "true"}}}}}}
		r := &Reconciler{Now: func() time.Time { return now }}
		err := r.readState(t.Context(), s, c, func(context.Context, client.ObjectKey) ([]corev1.Node, error) { return nil, nil })
		if err != nil || s.state.abandonedAt.IsZero() != tc.expected || s.requeueAfter > 0 != tc.expected {
			t.Errorf("%s: abandoned at %s, again after %s, %v", name, s.state.abandonedAt, s.requeueAfter, err)
		}
	}
}

// TestAbandonedPool: nor is it abandoned while a pool asks for machines with etcd, whose MachineDeployment is being deleted or is gone.
func TestAbandonedPool(t *testing.T) {
	scheme := fakeclient.Scheme(t, corev1.AddToScheme, clusterv1.AddToScheme, rkev1.AddToScheme, provisioningv1.AddToScheme)
	for name, tc := range map[string]struct {
		change   func(*provisioningv1.Cluster)
		expected bool
	}{
		"etcd":     {func(*provisioningv1.Cluster) {}, true},
		"none":     {func(c *provisioningv1.Cluster) { c.Spec.RKEConfig.MachinePools[0].Quantity = new(int32(0)) }, false},
		"workers":  {func(c *provisioningv1.Cluster) { c.Spec.RKEConfig.MachinePools[0].EtcdRole = false }, false},
		"no pool":  {func(c *provisioningv1.Cluster) { c.Spec.RKEConfig.MachinePools = nil }, false},
		"imported": {func(c *provisioningv1.Cluster) { c.Spec.RKEConfig = nil }, false},
		"being deleted": {func(c *provisioningv1.Cluster) {
			c.Finalizers, c.DeletionTimestamp = []string{"example.com/f"}, &metav1.Time{Time: now}
		}, false},
	} {
		owner := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "u"}}
		owner.Spec.RKEConfig = &provisioningv1.RKEConfig{MachinePools: []provisioningv1.RKEMachinePool{{Name: "p", EtcdRole: true}}}
		tc.change(owner)
		cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(owner, provisioningv1.GroupVersion.WithKind("Cluster"))}}}
		deleted := &metav1.Time{Time: now.Add(-time.Hour)}
		s := &scope{key: client.ObjectKeyFromObject(cluster), cluster: cluster, machines: []*member{{bootstrap: &rkev1.RKEBootstrap{},
			machine: &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "a", DeletionTimestamp: deleted,
				Labels: map[string]string{rkev1.EtcdRoleLabel: "true"}}}}}}
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(owner).Build()
		r := &Reconciler{Now: func() time.Time { return now }}
		err := r.readState(t.Context(), s, c, func(context.Context, client.ObjectKey) ([]corev1.Node, error) { return nil, nil })
		if err != nil || s.state.abandonedAt.IsZero() != tc.expected {
			t.Errorf("%s: abandoned at %s, %v", name, s.state.abandonedAt, err)
		}
	}
}
