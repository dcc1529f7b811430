package render

import (
	"slices"
	"strings"
	"testing"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/plans"
)

// authoritiesIn are the names of the certificate authorities that a plan writes.
func authoritiesIn(plan plans.Plan) (names []string) {
	for _, f := range plan.Files {
		if _, name, found := strings.Cut(f.Path, "/server/tls/"); found && f.Action == "" {
			names = append(names, name)
		}
	}
	return names
}

// The certificate authorities are given to the server that starts the cluster, and to no other machine.
func TestCertificateAuthorities(t *testing.T) {
	for roles, want := range map[string]int{"ecwi": 4, "ei": 4, "ecw": 0, "c": 0, "e": 0, "w": 0} {
		in := machineOf(t, k3s, "a", roles)
		first, _ := Plan(in)
		if got := authoritiesIn(first); len(got) != want {
			t.Errorf("%s: the first plan has %v", roles, got)
		}
		in.Cluster.Bootstrapped = true
		later, _ := Plan(in)
		if got := authoritiesIn(later); len(got) > 0 {
			t.Errorf("%s: the plan of a machine in a running cluster has %v", roles, got)
		}
		if got := ImpactOf(first, later); got != ImpactNone {
			t.Errorf("%s: that the cluster was started has the impact %s", roles, got)
		}
	}
}

// earlierPlan is the plan of k3s-single-node as hubs before docs/adr/0025-ca-rotation.md delivered it: the certificate authorities are in
// it and count for the stamps.
func earlierPlan(t *testing.T) (Inputs, plans.Plan) {
	t.Helper()
	in := machineOf(t, k3s, "a", "ecwi")
	plan, _ := Plan(in)
	if len(authoritiesIn(plan)) != 4 {
		t.Fatalf("the plan has %v", authoritiesIn(plan))
	}
	plan.Instructions[0].Env[0] = "RESTART_STAMP=f68bc9fc87a73f2d7ac94af49ac1499d0a08c12b853b58e3867d0904434aa6a6"
	plan.Instructions[0].Env[1] = "DRAIN_HASH=15ed76b8f30241ba0931d554dbbcc79a3afaeefb5e98358edf329fa6b7c6d7b6"
	in.Cluster.Bootstrapped, in.Delivered, in.Machine.Applied = true, plan, true
	return in, plan
}

// A plan that an earlier hub has delivered stays until something else changes, and loses the authorities then without a restart.
func TestAuthoritiesOfEarlierHub(t *testing.T) {
	in, delivered := earlierPlan(t)
	rotated := KeyPair{Cert: []byte("new\n"), Key: []byte("new key\n")}
	if plan, _ := Plan(in); !plans.Diff(delivered, plan).Empty() {
		t.Errorf("it is changed: %s", plans.Diff(delivered, plan))
	}
	for name, change := range map[string]func(*Inputs){
		"it may be applied again":  func(in *Inputs) { in.Machine.Applied = false },
		"the Secrets were changed": func(in *Inputs) { in.Cluster.CA = CA{Server: rotated, Client: rotated} },
		"a manifest":               func(in *Inputs) { in.Cluster.Spec.AdditionalManifest = "a: b" },
		"another one in the plan":  func(in *Inputs) { in.Delivered.Files = withContent(in.Delivered.Files, "client-ca.crt", "Zm9yZ2Vk") },
		"an instruction was added": func(in *Inputs) {
			in.Delivered.Instructions = append(in.Delivered.Instructions[:1:1], plans.Instruction{})
		},
		"the files are in part gone": func(in *Inputs) { in.Delivered.Files = in.Delivered.Files[1:]; in.Machine.Applied = false },
	} {
		in, _ := earlierPlan(t)
		change(&in)
		plan, _ := Plan(in)
		if got := authoritiesIn(plan); len(got) > 0 {
			t.Errorf("%s: the plan still has %v", name, got)
		}
		want := ImpactNone
		if name == "another one in the plan" {
			want = ImpactDrain // nobody knows what was applied
		}
		if got := ImpactOf(in.Delivered, plan); got != want {
			t.Errorf("%s: the impact is %s, want %s", name, got, want)
		}
		in.Delivered = plan
		if again, _ := Plan(in); encoded(t, plan) != encoded(t, again) {
			t.Errorf("%s: the second render differs", name)
		}
	}

	in.Machine.Applied = false
	in.Delivered, _ = Plan(in)
	in.Machine.Applied, in.Cluster.CA = true, CA{Server: rotated, Client: rotated}
	if plan, _ := Plan(in); !plans.Diff(in.Delivered, plan).Empty() {
		t.Errorf("new authorities in the Secrets change the plan: %s", plans.Diff(in.Delivered, plan))
	}
	in.Cluster.Spec.MachineGlobalConfig = config(t, `{"selinux": true}`)
	plan, _ := Plan(in)
	if ImpactOf(in.Delivered, plan) != ImpactDrain || len(plan.Instructions[0].Env) != 2 {
		t.Errorf("after a change that restarts, the impact is %s and the variables are %v", ImpactOf(in.Delivered, plan),
			plan.Instructions[0].Env)
	}
}

func withContent(files []plans.File, name, content string) []plans.File {
	files = slices.Clone(files)
	for i := range files {
		if strings.HasSuffix(files[i].Path, "/"+name) {
			files[i].Content = content
		}
	}
	return files
}

// An operation takes the delivered plan, but not the authorities in it: they may have been replaced.
func TestTaskWithoutAuthorities(t *testing.T) {
	in, delivered := earlierPlan(t)
	op := &operationv1.ETCDSnapshotSave{}
	with := WithTask(in.Cluster, in.Machine, delivered, op, operation.Task{Step: operationv1.StepSave, Name: operation.TaskSaveSnapshot})
	if got := authoritiesIn(with); len(got) > 0 || len(with.Files) != len(delivered.Files)-4 {
		t.Errorf("the plan has %d files and writes %v", len(with.Files), got)
	}
	if got := ImpactOf(delivered, with); got != ImpactNone {
		t.Errorf("the impact is %s", got)
	}
	in.Delivered = with
	after, _ := Plan(in)
	if got := ImpactOf(with, after); got != ImpactNone || len(authoritiesIn(after)) > 0 {
		t.Errorf("after the operation, the impact is %s and the plan writes %v", got, authoritiesIn(after))
	}
}
