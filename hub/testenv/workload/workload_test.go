package workload

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/cluster-api/util/secret"
)

// TestPatch: a patch that changes nothing gives the Node no new version, as in the real API.
func TestPatch(t *testing.T) {
	cluster := Start()
	defer cluster.Stop()
	kubeconfig, err := cluster.KubeconfigSecret("ns", "cluster")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig.Data[secret.KubeconfigDataName])
	if err != nil {
		t.Fatal(err)
	}
	nodes := kubernetes.NewForConfigOrDie(config).CoreV1().Nodes()
	cluster.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", CreationTimestamp: metav1.Now()}})
	version := cluster.Node("node").ResourceVersion
	for _, kind := range []types.PatchType{types.MergePatchType, types.StrategicMergePatchType} {
		for _, tc := range []struct {
			patch   string
			changes bool
		}{{`{}`, false}, {`{"metadata":{"annotations":{"by":"` + string(kind) + `"}}}`, true},
			{`{"metadata":{"annotations":{"by":"` + string(kind) + `"}}}`, false}} {
			patched, err := nodes.Patch(t.Context(), "node", kind, []byte(tc.patch), metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if (patched.ResourceVersion != version) != tc.changes {
				t.Errorf("%s %s: version %s after %s", kind, tc.patch, patched.ResourceVersion, version)
			}
			version = patched.ResourceVersion
		}
	}
}

// TestStop: a watch that a client begins while the API ends holds up nothing.
func TestStop(t *testing.T) {
	cluster := Start()
	defer cluster.Stop()
	cluster.stop()
	watch, err := kubernetes.NewForConfigOrDie(cluster.Config()).CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		return // it does not even begin
	}
	defer watch.Stop()
	for {
		select {
		case _, open := <-watch.ResultChan():
			if !open {
				return
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the watch goes on")
		}
	}
}
