package render

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/server/settings"
)

// TestAgentRestartsNobody: whatever changes about the agent, no node restarts and none is drained.
func TestAgentRestartsNobody(t *testing.T) {
	render := func(change func(*Inputs)) Inputs {
		in := machineOf(t, k3s, "a", "ecwi")
		in.Cluster.Settings = settings.Settings{ServerURL: "https://hub.example", CACerts: []byte("ca\n")}
		in.Cluster.Agent = &Agent{Token: "id.one", Replicas: 1}
		if change != nil {
			change(&in)
		}
		return in
	}
	before, _ := Plan(render(nil))
	for name, change := range map[string]func(*Inputs){
		"no agent yet":    func(in *Inputs) { in.Cluster.Agent = nil },
		"another token":   func(in *Inputs) { in.Cluster.Agent.Token = "id.two" },
		"another machine": func(in *Inputs) { in.Cluster.Agent.Replicas = 2 },
		"customized": func(in *Inputs) {
			in.Cluster.Spec.ClusterAgentDeploymentCustomization = &rkev1.AgentDeploymentCustomization{OverrideAffinity: &corev1.Affinity{}}
		},
		"another hub": func(in *Inputs) { in.Cluster.Settings.ServerURL = "https://other.example" },
	} {
		after, problems := Plan(render(change))
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		if encoded(t, before) == encoded(t, after) {
			t.Errorf("%s: the plan is the same", name)
		}
		if impact := ImpactOf(before, after); impact != ImpactNone {
			t.Errorf("%s: the machine goes through %s", name, impact)
		}
	}
}

// TestAgentOfAdoptedCluster: in a cluster whose certificate authorities the hub does not have, its controllers may drain and delete Nodes,
// and requests of its administrators are not refused, as in all others that it manages.
func TestAgentOfAdoptedCluster(t *testing.T) {
	in := machineOf(t, k3s, "a", "ecwi")
	in.Cluster.Settings = settings.Settings{ServerURL: "https://hub.example", CACerts: []byte("ca\n")}
	in.Cluster.Agent = &Agent{Token: "id.one", Replicas: 1}
	manifest := func() string {
		t.Helper()
		plan, problems := Plan(in)
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		return fileOf(t, plan, "/var/lib/rancher/k3s/"+AgentManifest)
	}
	made := manifest()
	if !strings.Contains(made, "- --allow-group\n") || !strings.Contains(made, "name: drover:controllers\n") {
		t.Errorf("the manifest is\n%s", made)
	}
	in.Cluster.CA = CA{}
	if diff := cmp.Diff(made, manifest()); diff != "" {
		t.Errorf("without the authorities (-want +got):\n%s", diff)
	}
}

func TestNodeTaints(t *testing.T) {
	taint := func(key, value string, effect corev1.TaintEffect) corev1.Taint {
		return corev1.Taint{Key: key, Value: value, Effect: effect}
	}
	in := machineOf(t, rke2, "a", "ec")
	in.Machine.NodeTaints = []corev1.Taint{taint("dedicated", "db", "NoSchedule")}
	in.Cluster.Spec.MachineGlobalConfig = config(t, `{"node-taint": ["CriticalAddonsOnly=true:NoExecute", "broken"]}`)
	want := []corev1.Taint{
		taint("CriticalAddonsOnly", "true", "NoExecute"), taint("dedicated", "db", "NoSchedule"),
		taint("node-role.kubernetes.io/control-plane", "", "NoSchedule"), taint("node-role.kubernetes.io/etcd", "", "NoExecute"),
	}
	if diff := cmp.Diff(want, NodeTaints(in.Cluster, in.Machine)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestTaintsOnce: a kubelet does not start with two taints of one key and effect.
func TestTaintsOnce(t *testing.T) {
	const etcd, controlPlane = "node-role.kubernetes.io/etcd", "node-role.kubernetes.io/control-plane"
	in := machineOf(t, rke2, "a", "ec")
	in.Machine.NodeTaints = []corev1.Taint{{Key: controlPlane, Value: "mine", Effect: corev1.TaintEffectNoSchedule},
		{Key: "dedicated", Value: "db", Effect: corev1.TaintEffectNoSchedule},
		{Key: "dedicated", Value: "db", Effect: corev1.TaintEffectNoExecute}}
	in.Cluster.Spec.MachineGlobalConfig = config(t, `{"node-taint": ["`+etcd+`=true:NoExecute"], "node-taint+": "dedicated:NoSchedule"}`)
	var got []string
	for _, taint := range NodeTaints(in.Cluster, in.Machine) {
		got = append(got, taint.ToString())
	}
	want := []string{etcd + "=true:NoExecute", "dedicated=db:NoExecute", controlPlane + "=mine:NoSchedule", "dedicated:NoSchedule"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestVariableNames: with a name that Kubernetes does not take, the API server would refuse the cluster-agent's Deployment, and the cluster
// would never connect.
func TestVariableNames(t *testing.T) {
	for name, tc := range map[string]struct{ problem, instruction, manifest bool }{
		"HTTP_PROXY":                    {false, true, true},
		"http.proxy":                    {false, true, true},
		"HTTP_PROXY=http://user:secret": {true, false, false},
		"export HTTP_PROXY":             {true, true, false},
	} {
		in := machineOf(t, k3s, "a", "ecwi")
		in.Cluster.Settings = settings.Settings{ServerURL: "https://hub.example", CACerts: []byte("ca\n")}
		in.Cluster.Agent = &Agent{Token: "id.one", Replicas: 1}
		in.Cluster.Spec.AgentEnvVars = []rkev1.EnvVar{{Name: name, Value: "planted"}}
		plan, problems := Plan(in)
		if (len(problems) > 0) != tc.problem || problems.Err() != nil || strings.Contains(fmt.Sprint(problems), "secret") {
			t.Errorf("%s: problems %v", name, problems)
		}
		if got := slices.Contains(plan.Instructions[0].Env, name+"=planted"); got != tc.instruction {
			t.Errorf("%s: the installer has %v", name, plan.Instructions[0].Env)
		}
		if got := strings.Contains(fileOf(t, plan, "/var/lib/rancher/k3s/"+AgentManifest), "planted"); got != tc.manifest {
			t.Errorf("%s: the cluster-agent has it: %t", name, got)
		}
	}
}
