package rkebootstrap

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/cause"
)

func testObjects() (*rkev1.RKEBootstrap, *clusterv1.Machine) {
	bootstrap := &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "custom-0123456789ab", UID: "b",
		Labels: map[string]string{
			rkev1.EtcdRoleLabel: "true", rkev1.InitNodeLabel: "true", rkev1.MachineNameLabel: "somebody-else", "mine": "yes",
		},
		Annotations: map[string]string{
			rkev1.AddressAnnotation: "192.0.2.1", rkev1.MachineSecretHashAnnotation: "hash",
			rkev1.JoinedToAnnotation: "https://elsewhere", rkev1.DrainDoneAnnotation: "{}", "kubectl.kubernetes.io/last-applied-configuration": "{}",
		},
	}}
	machine := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "custom-0123456789ab"},
		Spec:       clusterv1.MachineSpec{ClusterName: "one"},
	}
	return bootstrap, machine
}

func TestPlanSecret(t *testing.T) {
	bootstrap, machine := testObjects()
	// Those of a node driver's RKEBootstrap are all addresses, those of the plan Secret the selected ones.
	bootstrap.Annotations[rkev1.InfrastructureAddressesAnnotation] = `{"internal":["10.0.0.1","10.0.0.2"]}`
	for _, ofOthers := range []string{rkev1.BootstrapTokenHashAnnotation, rkev1.NodeLabelsAnnotation, rkev1.SnapshotChecksumsAnnotation,
		rkev1.AgentLastSeenAnnotation, rkev1.ReportedJoinAddressAnnotation,
		rkev1.DrainWaitingAnnotation, rkev1.DrainBeganAnnotation, rkev1.DrainCordonedAnnotation} {
		bootstrap.Annotations[ofOthers] = "from a template"
	}
	got := planSecret(bootstrap, machine, "")
	if got.Name != "custom-0123456789ab-machine-plan" || got.Type != rkev1.MachinePlanSecretType {
		t.Errorf("got Secret %s of type %s", got.Name, got.Type)
	}
	if len(got.Data) != 0 {
		t.Error("the plan Secret is applied with data, which would remove what others wrote")
	}
	want := map[string]string{
		rkev1.EtcdRoleLabel:              "true",
		"mine":                           "yes",
		rkev1.MachineNameLabel:           "custom-0123456789ab",
		rkev1.BootstrapNameLabel:         "custom-0123456789ab",
		rkev1.ClusterNameLabel:           "one",
		clusterv1.ClusterNameLabel:       "one",
		rkev1.BackupLabel:                "true",
		rkev1.LifecycleClusterGroupLabel: "cluster.x-k8s.io",
		rkev1.LifecycleClusterKindLabel:  "Cluster",
		rkev1.LifecycleClusterNameLabel:  "one",
		rkev1.LifecycleMachineGroupLabel: "cluster.x-k8s.io",
		rkev1.LifecycleMachineKindLabel:  "Machine",
		rkev1.LifecycleMachineNameLabel:  "custom-0123456789ab",
	}
	if diff := cmp.Diff(want, got.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{rkev1.AddressAnnotation: "192.0.2.1"}, got.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if got := planSecret(bootstrap, machine, "hash"); got.Annotations[rkev1.BootstrapTokenHashAnnotation] != "hash" {
		t.Errorf("annotations %v lack the hash of the bootstrap token", got.Annotations)
	}
}

// TestIdentity: the machine's ServiceAccount and its plan Secret share a name and the RKEBootstrap as owner, by which the gateway goes.
func TestIdentity(t *testing.T) {
	bootstrap, machine := testObjects()
	account, plan := planAccount(bootstrap, machine), planSecret(bootstrap, machine, "")
	for _, object := range []client.Object{account, plan} {
		if !metav1.IsControlledBy(object, bootstrap) || !bootstrap.Owns(object) || object.GetName() != "custom-0123456789ab-machine-plan" {
			t.Errorf("%T %s does not go with the RKEBootstrap: %v", object, object.GetName(), object.GetOwnerReferences())
		}
	}
	if account.Labels[rkev1.PlanSecretNameLabel] != plan.Name || account.Labels[rkev1.ServiceAccountRoleLabel] != "plan" {
		t.Errorf("the ServiceAccount has labels %v", account.Labels)
	}
}

func TestSetStatus(t *testing.T) {
	for _, tt := range []struct {
		name           string
		identity, data *cause.Cause
		want           map[string]string
		created        bool
	}{
		{name: "done", created: true, want: map[string]string{"IdentityReady": "True", "DataSecretReady": "True", "Ready": "True"}},
		{name: "no token", identity: cause.New("WaitingForToken", "w"), created: true,
			want: map[string]string{"IdentityReady": "False", "DataSecretReady": "True", "Ready": "False"}},
		{name: "no infrastructure", data: cause.New("WaitingForInfrastructure", "w"),
			want: map[string]string{"IdentityReady": "True", "DataSecretReady": "False", "Ready": "False"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bootstrap, machine := testObjects()
			setStatus(&scope{bootstrap: bootstrap, machine: machine, identity: tt.identity, data: tt.data})
			got := map[string]string{}
			for _, c := range bootstrap.Status.Conditions {
				got[c.Type] = string(c.Status)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if has := bootstrap.Status.DataSecretName != nil; has != tt.created || bootstrap.Status.Ready != tt.created {
				t.Errorf("dataSecretName is set: %t, ready: %t, want %t", has, bootstrap.Status.Ready, tt.created)
			}
		})
	}
}

// TestUntilWaitsShown: a new RKEBootstrap has a moment until its status says what it waits for.
func TestUntilWaitsShown(t *testing.T) {
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	machine, token := cause.New(reasonWaitingForMachine, "w"), cause.New(reasonWaitingForToken, "w")
	for name, tc := range map[string]struct {
		identity, data *cause.Cause
		known          bool
		asked          time.Time
		now            time.Time
		want           time.Duration
	}{
		"waits for its Machine":       {identity: machine, data: machine, now: created, want: 10 * time.Second},
		"waits for one of two tokens": {data: token, now: created.Add(time.Second), want: 9 * time.Second},
		"waits for long":              {identity: token, data: token, now: created.Add(10 * time.Second)},
		"waits for a token that was asked for late": {identity: token, asked: created.Add(time.Minute), now: created.Add(61 * time.Second),
			want: 9 * time.Second},
		"waits for something else, too": {identity: token, data: cause.New("WaitingForInfrastructure", "w"), now: created},
		"waits for nothing":             {now: created},
		"waits again":                   {identity: token, data: token, known: true, now: created},
		"created by another clock":      {identity: token, data: token, now: created.Add(-time.Second)},
	} {
		bootstrap, _ := testObjects()
		bootstrap.CreationTimestamp = metav1.NewTime(created)
		if tc.known {
			conditions.Set(bootstrap, metav1.Condition{Type: rkev1.ReadyCondition, Status: metav1.ConditionTrue, Reason: "Ready"})
		}
		s := &scope{bootstrap: bootstrap, identity: tc.identity, data: tc.data, tokenAsked: tc.asked}
		if got := s.untilWaitsShown(waitsShownAfter(0), tc.now); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// TestWaitsShownAfter: the more machines are made, the longer each has.
func TestWaitsShownAfter(t *testing.T) {
	for others, want := range map[int]time.Duration{0: 10 * time.Second, 50: 30 * time.Second, 10000: time.Minute} {
		if got := waitsShownAfter(others); got != want {
			t.Errorf("beside %d others: %s, want %s", others, got, want)
		}
	}
}

// TestNotCopied: what others write to plan Secrets, by the documentation of the writers, a template's annotations cannot overrule; and
// that documentation has all of it.
func TestNotCopied(t *testing.T) {
	raw, err := os.ReadFile("../rkecontrolplane/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	documented := []string{rkev1.MachineSecretHashAnnotation, rkev1.EtcdForceRemoveAnnotation} // of no plan Secret
	for line := range strings.Lines(string(raw)) {
		row := strings.Fields(line)
		if len(row) < 4 || row[1] != "annotation" || !strings.HasPrefix(row[2], "rke.cattle.io/") || row[3] == "user" {
			continue
		}
		documented = append(documented, row[2])
		if !slices.Contains(notCopied, row[2]) {
			t.Errorf("%s of an RKEBootstrap overrules what %s writes", row[2], row[3])
		}
	}
	for _, key := range notCopied {
		if !slices.Contains(documented, key) {
			t.Errorf("who writes %s is not documented", key)
		}
	}
}
