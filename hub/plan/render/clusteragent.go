package render

import (
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/hub/access/clusteragent"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/plans"
)

// AgentManifest is the file of the cluster-agent's manifest, below the folder of the distribution's state.
const AgentManifest = "server/manifests/rancher/cluster-agent.yaml"

// Agent is what the cluster-agent needs to know beyond the cluster's specification.
type Agent struct {
	// Token is the registration token that it introduces itself with.
	Token string
	// PublicKeys are those of the hub, as a JSON Web Key Set, for the authorized cluster endpoint.
	PublicKeys []byte
	// ControlPlaneTaints are those of all control-plane machines, see NodeTaints.
	ControlPlaneTaints []corev1.Taint
	// Replicas is 1 or 2.
	Replicas int32
}

// addClusterAgent adds the manifest of the cluster-agent. It asks for no restart: the deploy controller applies what has changed. While the
// hub cannot make the manifest, the machine keeps the one that it has: without it, the deploy controller would remove the agent.
func (b *builder) addClusterAgent() {
	at := plans.File{Path: b.dataDir + "/" + AgentManifest, Dynamic: true, Minor: true}
	agent := b.Cluster.Agent
	if agent == nil {
		i := slices.IndexFunc(b.Delivered.Files,
			func(f plans.File) bool { return path.Clean(f.Path) == at.Path && f.Action != plans.ActionDelete })
		if i >= 0 {
			b.files = append(b.files, file{File: b.Delivered.Files[i]})
		}
		return
	}
	settings := b.Cluster.Settings
	settings.SystemDefaultRegistry = b.systemRegistry()
	in := clusteragent.Input{
		ServerURL: settings.ServerURL, CACerts: settings.CACerts, Cluster: b.Cluster.ManagementName, Token: agent.Token,
		Image: settings.AgentImage(),
		Env:   b.Cluster.Spec.AgentEnvVars, Customization: b.Cluster.Spec.ClusterAgentDeploymentCustomization,
		ControlPlaneTaints: agent.ControlPlaneTaints, Replicas: agent.Replicas, AllowMasters: true,
	}
	if b.authEndpoint {
		in.AuthEndpoint = &clusteragent.AuthEndpoint{Host: b.loopback(), PublicKeys: agent.PublicKeys}
	}
	for i, v := range in.Env {
		field := fmt.Sprintf("spec.agentEnvVars[%d].name", i)
		switch {
		case clusteragent.Reserved(v.Name):
			b.problems.doubt(field, "is %s, which the hub sets for the cluster-agent itself; machines get it", v.Name)
		case v.Name != "" && !clusteragent.ValidName(v.Name) && !strings.Contains(v.Name, "="):
			b.problems.doubt(field, "is %q, which Kubernetes does not take as a name: the cluster-agent does not get the variable", v.Name)
		}
	}
	if in.Customization != nil {
		for i, t := range in.Customization.AppendTolerations {
			if fault := clusteragent.TolerationFault(t); fault != "" {
				b.problems.warn(fmt.Sprintf("spec.clusterAgentDeploymentCustomization.appendTolerations[%d]", i),
					"was left out: %s", strings.TrimLeft(fault, ".: "))
			}
		}
		b.checkCustomization(*in.Customization)
	}
	manifest, err := clusteragent.Manifest(in)
	if err != nil {
		b.problems.fail("spec.clusterAgentDeploymentCustomization", "cannot be written as a manifest: %s", err)
		return
	}
	b.add(at, manifest)
}

// checkCustomization reports what a manifest does not have, since the cluster's API server would refuse it.
func (b *builder) checkCustomization(c rkev1.AgentDeploymentCustomization) {
	const field = "spec.clusterAgentDeploymentCustomization"
	if own := c.OverrideResourceRequirements; own != nil {
		if fault := clusteragent.ResourcesFault(*own); fault != "" {
			b.problems.warn(field+".overrideResourceRequirements", "was left out: %s", strings.TrimLeft(fault, "."))
		}
	}
	if s := c.SchedulingCustomization; s != nil && s.PodDisruptionBudget != nil {
		if fault := clusteragent.BudgetFault(*s.PodDisruptionBudget); fault != "" {
			b.problems.warn(field+".schedulingCustomization.podDisruptionBudget", "was left out: %s", strings.TrimLeft(fault, "."))
		}
	}
}

// NodeTaints are the taints that a machine's Node registers with: the machine's own, those of its role, and those that the cluster's
// configuration gives it.
func NodeTaints(cluster Cluster, machine Machine) []corev1.Taint {
	b := builder{Inputs: Inputs{Cluster: cluster, Machine: machine}}
	b.mergeArgs()
	b.addNodeArgs()
	var out []corev1.Taint
	for _, word := range b.args.words("node-taint") {
		spec, effect, found := strings.Cut(word, ":")
		if !found {
			continue // the kubelet says so
		}
		key, value, _ := strings.Cut(spec, "=")
		out = append(out, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}
	return out
}
