package drivermachine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/util/cause"
)

func TestBackoff(t *testing.T) {
	for attempt, want := range map[int]time.Duration{
		1: 30 * time.Second, 2: time.Minute, 5: 8 * time.Minute, 6: 15 * time.Minute, 1000: 15 * time.Minute,
	} {
		if got := backoff(attempt); got != want {
			t.Errorf("after attempt %d: %s, want %s", attempt, got, want)
		}
	}
}

// A machine is provisioned once its Node was found, has the addresses of driver and Node, and loses nothing while the
// cluster is unreachable.
func TestSetStatus(t *testing.T) {
	s := &scope{
		object: &unstructured.Unstructured{Object: map[string]any{}},
		stored: &stored{progress: progress{
			Phase: phaseCreated, Addresses: []nodedriver.Address{{Internal: true, Address: "10.0.0.1"}, {Address: "192.0.2.1"}},
		}},
		found: cause.New("WaitingForNode", "Waiting"),
	}
	var status machineStatus
	check := func(provisioned bool, addresses int, created, found, ready string) {
		t.Helper()
		if err := setStatus(s, &status); err != nil {
			t.Fatal(err)
		}
		if status.Initialization.Provisioned != provisioned || len(status.Addresses) != addresses {
			t.Errorf("got %+v", status)
		}
		for name, reason := range map[string]string{"Created": created, "NodeFound": found, "Ready": ready} {
			if c := meta.FindStatusCondition(status.Conditions, name); reason != "" && (c == nil || c.Reason != reason) {
				t.Errorf("%s is %+v, want %s", name, c, reason)
			}
		}
	}
	check(false, 2, "Created", "WaitingForNode", "WaitingForNode")
	node := &corev1.Node{Spec: corev1.NodeSpec{ProviderID: "lab://1"}}
	node.Name = "a"
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeHostName, Address: "a"}}
	s.node, s.found = node, nil
	check(true, 3, "Created", "NodeFound", "NodeFound")
	s.node, s.found, s.nodeUnknown = nil, cause.New("ConnectionDown", "Waiting"), true
	check(true, 3, "Created", "ConnectionDown", "NodeFound")
	if id, _, err := unstructured.NestedString(s.object.Object, "spec", "providerID"); err != nil || id != "lab://1" {
		t.Errorf("provider ID %q, %v", id, err)
	}
	s.nodeUnknown = false
	s.created = cause.New("CreateError", "quota")
	check(true, 3, "CreateError", "", "CreateError")
}

func TestSelectNode(t *testing.T) {
	machine := &clusterv1.Machine{}
	with, without := corev1.Node{Spec: corev1.NodeSpec{ProviderID: "x"}}, corev1.Node{}
	for reason, nodes := range map[string][]corev1.Node{
		"WaitingForNode": nil, "WaitingForProviderID": {without}, "SeveralNodes": {with, with}, "": {with},
	} {
		node, waiting := selectNode(nodes, machine)
		if reason == "" && (node == nil || waiting != nil) || reason != "" && (waiting == nil || waiting.Reason != reason || node != nil) {
			t.Errorf("%s: %v, %v", reason, node, waiting)
		}
	}
}
