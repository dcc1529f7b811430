package render

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"path"
	"slices"
	"strings"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/release"
	"github.com/drover-dev/drover/plans"
)

// checkUnchangeable refuses an argument with which a server of a running cluster would not find its data again: with another data
// directory, the server that the others have joined would start another cluster.
func (b *builder) checkUnchangeable() {
	before, known := configOf(b.Cluster.Release.Runtime, b.Delivered)
	if !known || !b.Cluster.Bootstrapped || !b.Machine.server() {
		return
	}
	if dir := cmp.Or(before.text("data-dir"), b.Cluster.names().DataDir); path.Clean(dir) != path.Clean(b.dataDir) {
		b.problems.fail(b.fieldOf("data-dir"), "cannot be changed: servers keep the data of the cluster in %s; set it back", dir)
	}
}

// checkDirectories refuses directories of which one lies within another. The API server does not compare those that are not set. An agent
// that leaves the machine removes its own with all that is in it, and an uninstall script that of the distribution. In a cluster that was
// started, where they cannot be changed any more, it warns.
func (b *builder) checkDirectories() {
	dirs := b.Cluster.Spec.DataDirectories
	field := "spec.rkeConfig.dataDirectories"
	if dirs.K8sDistro == "" && b.args.text("data-dir") != "" {
		field = b.fieldOf("data-dir")
	}
	agent := cmp.Or(string(dirs.SystemAgent), defaultAgentDir)
	for _, pair := range [][2]string{{b.dataDir, agent}, {b.dataDir, b.provisioningDir()}, {agent, b.provisioningDir()}} {
		if !within(pair[0], pair[1]) && !within(pair[1], pair[0]) {
			continue
		}
		report := b.problems.fail
		if b.Cluster.Bootstrapped {
			report = b.problems.doubt
		}
		report(field, "%s and %s must not lie within one another: the directories of the distribution, the agent and plans are removed with all "+
			"that is in them", pair[0], pair[1])
	}
}

// within reports whether a path is below another one, or the same.
func within(at, dir string) bool {
	return strings.HasPrefix(path.Clean(at)+"/", path.Clean(dir)+"/")
}

// checkRoles refuses roles with which a machine of a running cluster would run something else: a server that stops etcd stays a member
// that is down, and a worker that becomes a server, or a server that becomes a worker, has the services of both. Roles are labels, which
// Cluster API changes in place with the template of a MachineDeployment. They are compared by what the configuration says.
func (b *builder) checkRoles() {
	before, known := configOf(b.Cluster.Release.Runtime, b.Delivered)
	install := installIndex(b.Delivered)
	if !known || install < 0 || !b.Cluster.Bootstrapped || b.Machine.windows() {
		return
	}
	agent := slices.Contains(b.Delivered.Instructions[install].Env, b.execAgent())
	if had, has := rolesOf(before, !agent), rolesOf(b.args, b.Machine.server()); had != has {
		b.problems.fail("machine "+b.Machine.Name, "is to change from %s to %s, which is not supported: set the labels %s and %s back, in "+
			"the template of its MachineDeployment, or on its Machine and RKEBootstrap; for other roles, create another machine, and delete "+
			"this one when that has joined", had, has, rkev1.EtcdRoleLabel, rkev1.ControlPlaneRoleLabel)
	}
}

// rolesOf says what a machine with a configuration runs.
func rolesOf(config args, server bool) string {
	runs := func(disabled string) bool { return config[disabled] != true && config[disabled] != "true" }
	etcd, controlPlane := runs("disable-etcd"), runs("disable-apiserver")
	switch {
	case !server:
		return "a worker"
	case etcd && controlPlane:
		return "etcd with control plane"
	case etcd:
		return "etcd without control plane"
	case controlPlane:
		return "control plane without etcd"
	}
	return "a server without etcd and control plane"
}

// configOf is the configuration of the distribution that a plan writes; false if it writes none, or one that is not the hub's.
func configOf(runtime string, plan plans.Plan) (config args, known bool) {
	file := configPath(Cluster{Release: release.Release{Runtime: runtime}})
	i := slices.IndexFunc(plan.Files, func(f plans.File) bool { return f.Path == file && f.Action != plans.ActionDelete })
	if i < 0 {
		return nil, false
	}
	content, err := base64.StdEncoding.DecodeString(plan.Files[i].Content)
	if err != nil || json.Unmarshal(content, &config) != nil {
		return nil, false
	}
	return config, true
}

// NodeAddresses are the addresses of the Node in the configuration that a plan writes; none where it leaves them to the distribution.
func NodeAddresses(plan plans.Plan) (internal, external []string) {
	config, _ := configOf(ConfiguredRuntime(plan), plan)
	addresses := func(key string) []string {
		list, err := toList(config[key])
		if err != nil {
			return nil // there is none
		}
		return args{key: list}.words(key)
	}
	return addresses("node-ip"), addresses("node-external-ip")
}

// ConfiguredRuntime returns the runtime whose configuration a plan writes, release.K3s or release.RKE2; empty if it writes none.
func ConfiguredRuntime(plan plans.Plan) string {
	for _, runtime := range []string{release.K3s, release.RKE2} {
		if _, known := configOf(runtime, plan); known {
			return runtime
		}
	}
	return ""
}
